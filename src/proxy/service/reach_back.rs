//! What a request asks of a namespace's history.

use super::answers::refusal;
use super::{Caller, Context, Impersonation, Proxy, Refusal, RequestInfo, Target, Upstream, Verb};
use crate::proxy::past::{self, Known};
use crate::proxy::{across, decide};

impl Proxy {
    /// Refuses what reaches back behind the time in which the namespace is its project's.
    pub(super) async fn reach_back(
        &self,
        ctx: &Context<'_>,
        target: &Target,
        upstream: &Upstream,
        caller: &Caller,
        impersonation: Impersonation,
        id: &str,
    ) -> Result<(), Refusal> {
        let RequestInfo::Resource(request) = &target.request else { return Ok(()) };
        let query = target.forward.split_once('?').map_or("", |(_, query)| query);
        let Some(reach) = past::reach(request, query) else { return Ok(()) };
        let expired = || refusal("expired-version", past::expired());
        let claim = ctx.snapshot.claim(&target.cluster, &request.namespace).ok_or_else(expired)?;
        let question = match self.past.known(&claim.object, request, reach) {
            Known::Own => return Ok(()),
            Known::Past => return Err(expired()),
            Known::Ask(question) => question,
        };
        // Asked under the caller's identity, so only where the caller may list.
        let mut list = request.clone();
        list.verb = Verb::List;
        list.name.clear();
        let ctx = Context { request: &RequestInfo::Resource(list), ..*ctx };
        let decision = decide::authorize(&*self.decider, &ctx).map_err(|_| expired())?;
        let stands = across::stands(self, request, decision, upstream, caller, impersonation, id).await;
        let own = stands.is_some_and(|stands| self.past.settle(question, stands));
        own.then_some(()).ok_or_else(expired)
    }
}
