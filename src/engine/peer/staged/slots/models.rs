// SPDX-License-Identifier: Apache-2.0
//! Users of an arena whose slots are lost, in every order.

use super::*;
use crate::base::atomic::{AtomicU64, Ordering};
use crate::base::modelled::{explore, spawn};

/// Memory of some slots, whose addresses begin with `first`.
fn allocated(first: u64, slots: u64) -> Allocated<()> {
    let memory = Arc::new(());
    let places = (first..first + slots).map(|address| Place { memory: memory.clone(), address }).collect();
    Allocated { memory: Arc::downgrade(&memory), slots, places }
}

/// All slots are lost, so that users meet at their replacement.
fn lost() -> Slots<()> {
    let slots = Slots::new(SLOTS, allocated(0, SLOTS));
    for _ in 0..SLOTS {
        let Taken::Slot(number, place) = slots.take(SlotUser::new()) else { panic!("a slot is free") };
        std::mem::forget(place);
        slots.give_back(number, None);
    }
    slots
}

#[test]
fn a_slot_has_one_user_and_those_that_are_lost_are_replaced_once() {
    explore("slots", 3, || {
        let slots = Arc::new(lost());
        // How many users each place has, and how often some were allocated.
        let users = Arc::new([(); 2 * SLOTS as usize].map(|()| AtomicU64::new(0)));
        let allocations = Arc::new(AtomicU64::new(0));
        let threads = [(); 2].map(|()| {
            let (slots, users, allocations) = (slots.clone(), users.clone(), allocations.clone());
            spawn(move || {
                let user = SlotUser::new();
                for _ in 0..2 {
                    match slots.take(user) {
                        Taken::Slot(number, place) => {
                            let of_place = &users[place.address as usize];
                            assert_eq!(of_place.load(Ordering::Relaxed), 0, "another has {}", place.address);
                            of_place.store(1, Ordering::Relaxed);
                            of_place.store(0, Ordering::Relaxed);
                            drop(slots.give_back(number, Some(place)));
                        }
                        Taken::Missing(missing) => {
                            assert_eq!(missing, SLOTS);
                            assert_eq!(allocations.fetch_add(1, Ordering::Relaxed), 0, "replaced twice");
                            slots.replaced(Ok(vec![allocated(SLOTS, missing)]));
                        }
                        Taken::Nothing => (),
                    }
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(allocations.load(Ordering::Relaxed), 1);
        assert_eq!((slots.free(), slots.left()), (SLOTS, MAX_SLOTS - 2 * SLOTS));
    });
}
