//! Places for connections: so many, and of one address so many.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places of a listener.
pub(super) struct Places {
    room: Arc<Semaphore>,
    addresses: Arc<Addresses>,
}

struct Addresses {
    most: usize,
    // Only those that have a connection, so that there are never more than places.
    held: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection's place; given back when dropped.
pub(super) struct Place {
    _permit: Option<OwnedSemaphorePermit>,
    addresses: Arc<Addresses>,
    counted: Option<IpAddr>,
}

impl Places {
    pub(super) fn new(most: usize, per_address: usize) -> Self {
        let addresses = Addresses { most: per_address, held: Mutex::default() };
        Self { room: Arc::new(Semaphore::new(most)), addresses: Arc::new(addresses) }
    }

    /// Waits for a place.
    pub(super) async fn one(&self) -> Place {
        // The semaphore is never closed, so that there is always a place in the end.
        let permit = self.room.clone().acquire_owned().await.ok();
        Place { _permit: permit, addresses: self.addresses.clone(), counted: None }
    }
}

impl Place {
    /// Counts the place to an address; `false` while that one has as many as it may.
    pub(super) fn count(&mut self, address: IpAddr) -> bool {
        let address = network(address);
        let mut held = self.addresses.held.lock();
        let count = held.entry(address).or_default();
        if *count >= self.addresses.most {
            return false;
        }
        *count += 1;
        self.counted = Some(address);
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(address) = self.counted else { return };
        let mut held = self.addresses.held.lock();
        if let Some(count) = held.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                held.remove(&address);
            }
        }
    }
}

/// What one party has: an address, or of IPv6 the half that a network is given.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_has_so_many_places_and_leaves_the_rest() {
        let places = Places::new(10, 2);
        let take = async |address: &str| {
            let mut place = places.one().await;
            place.count(address.parse().unwrap()).then_some(place)
        };
        let first = take("192.0.2.1").await;
        let _mapped = take("::ffff:192.0.2.1").await.unwrap();
        assert!(take("192.0.2.1").await.is_none());
        assert!(take("192.0.2.2").await.is_some(), "others have their own");
        drop(first);
        assert!(take("192.0.2.1").await.is_some());
        let _v6 = [take("2001:db8::1").await.unwrap(), take("2001:db8::2").await.unwrap()];
        assert!(take("2001:db8::3").await.is_none(), "a host has a whole network of addresses");
        assert!(take("2001:db8:0:1::3").await.is_some());
        let kept = places.addresses.held.lock().len();
        assert_eq!(kept, 2, "nothing is kept of those that are gone");
        assert_eq!(places.room.available_permits(), 10 - 3);
    }
}
