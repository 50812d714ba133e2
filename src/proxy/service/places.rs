//! Places in the budgets, as requests take them, and the refusal where there is none.

use super::Proxy;
use crate::identity::tokens::Caller;
use crate::metrics::BudgetKind;
use crate::proxy::across::Shares;
use crate::proxy::budget::{Ground, InFlight, Over};
use crate::proxy::decide::Refusal;
use crate::proxy::meters;

/// What the parts of a list hold while they are asked for.
pub(in crate::proxy) struct Parts {
    /// How many are asked for at a time.
    pub(in crate::proxy) at_a_time: usize,
    _beside: Option<InFlight>,
    _ground: Ground,
}

impl Proxy {
    /// Places of a request in the budgets of its token and its account.
    pub(in crate::proxy) fn enter(&self, caller: &Caller, long: bool, places: usize) -> Result<InFlight, Refusal> {
        let kind = if long { BudgetKind::Streams } else { BudgetKind::Requests };
        let record = &caller.token.record;
        self.budget.enter(&record.id, &record.user_uid, kind, places).map_err(|over| self.over(&over))
    }

    /// The place of a permitted request where it goes.
    pub(in crate::proxy) fn ground(
        &self,
        place: &mut InFlight,
        cluster: &str,
        project: Option<&str>,
    ) -> Result<(), Refusal> {
        let ground = self.budget.ground(place, cluster, project).map_err(|over| self.over(&over))?;
        place.stand_on(ground);
        Ok(())
    }

    /// The places of a stream that is one in each of several namespaces.
    pub(in crate::proxy) fn ground_across(
        &self,
        place: &mut InFlight,
        cluster: &str,
        shares: &Shares<'_>,
    ) -> Result<(), Refusal> {
        let in_all = shares.namespaces();
        let ground = self.budget.across(place, cluster, &shares.at_a_time(in_all), in_all);
        place.stand_on(ground.map_err(|over| self.over(&over))?);
        Ok(())
    }

    /// The places of a list's parts: as many at a time as there are places for, down to one after the other. `place` is
    /// that of the first.
    pub(in crate::proxy) fn parts(
        &self,
        place: &InFlight,
        cluster: &str,
        shares: &Shares<'_>,
        most: usize,
    ) -> Result<Parts, Refusal> {
        let mut at_a_time = most.min(shares.namespaces());
        loop {
            match self.parts_of(place, cluster, shares, at_a_time) {
                Ok(parts) => return Ok(parts),
                Err(over) if at_a_time <= 1 => return Err(self.over(&over)),
                Err(_) => at_a_time /= 2,
            }
        }
    }

    fn parts_of(&self, place: &InFlight, cluster: &str, shares: &Shares<'_>, at_a_time: usize) -> Result<Parts, Over> {
        let beside = match at_a_time {
            0 | 1 => None,
            wide => Some(self.budget.beside(place, wide - 1)?),
        };
        let ground = self.budget.across(place, cluster, &shares.at_a_time(at_a_time), at_a_time)?;
        Ok(Parts { at_a_time, _beside: beside, _ground: ground })
    }

    fn over(&self, over: &Over) -> Refusal {
        meters::over(&self.metrics, over);
        Refusal { reason: over.reason(), status: over.status() }
    }

    /// Tells the metrics how many places of the clusters are taken.
    pub fn report(&self) {
        let snapshot = self.index.snapshot();
        meters::taken(&self.metrics, &self.budget, |cluster| snapshot.clusters.contains_key(cluster));
    }
}
