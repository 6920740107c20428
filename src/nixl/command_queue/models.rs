// SPDX-License-Identifier: Apache-2.0
//! Threads that send to an agent's thread, and one that drives the agent, in every order.

use super::*;
use crate::base::modelled::{explore, spawn};

/// Takes all that waits whenever it is woken, until it is to stop.
fn serve(receiver: &Receiver<u32>, stop: &AtomicBool) -> Vec<u32> {
    let mut taken = Vec::new();
    loop {
        // What was done before a wake-up is seen by the thread that takes it.
        let is_last = stop.load(Ordering::Relaxed);
        taken.extend(std::iter::from_fn(|| receiver.take()));
        if is_last {
            return taken;
        }
        receiver.queue().wait(None);
    }
}

#[test]
fn every_command_is_taken_once_and_no_wake_up_is_lost() {
    explore("agent_queue", 3, || {
        let (queue, receiver) = CommandQueue::new();
        let (receiver, stop) = (Arc::new(receiver), Arc::new(AtomicBool::new(false)));
        let agent = spawn({
            let (receiver, stop) = (receiver.clone(), stop.clone());
            move || serve(&receiver, &stop)
        });
        let sender = spawn({
            let queue = queue.clone();
            move || queue.send(1).unwrap()
        });
        queue.send(2).unwrap();
        // As a thread that drives the agent does.
        let mut taken = Vec::from_iter(receiver.take());
        sender.join().unwrap();
        stop.store(true, Ordering::Relaxed);
        queue.wake();
        taken.extend(agent.join().unwrap());
        taken.sort_unstable();
        assert_eq!((taken, queue.len()), (vec![1, 2], 0));
    });
}

#[test]
fn what_is_sent_while_the_receiver_is_dropped_is_returned_or_dropped() {
    explore("closed_queue", 3, || {
        let (queue, receiver) = CommandQueue::new();
        let value = Arc::new(());
        let senders = [(); 2].map(|()| {
            let (queue, value) = (queue.clone(), value.clone());
            spawn(move || drop(queue.send(value)))
        });
        drop(receiver);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(Arc::strong_count(&value), 1);
        assert!(queue.send(value).is_err());
    });
}
