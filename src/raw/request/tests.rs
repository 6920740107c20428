// SPDX-License-Identifier: Apache-2.0
//! Requests whose run has panicked: it is unknown what NIXL still does.

use super::*;
use crate::base::Status;
use crate::nixl::{RequestId, panic_in_step};

/// A request of an agent without a thread, and a holder of what it uses.
fn request() -> (Request, Arc<Resource>) {
    let (agent, _) = Agent::unattended();
    let resource = Resource {
        agent,
        id: RequestId::default(),
        side: RequestSide::Own,
        is_over: AtomicBool::new(false),
        prepared: None,
        holds: Holds::default(),
    };
    let descriptors = Descriptors::empty(MemoryType::Dram);
    let local = (None, &descriptors);
    let request = Request::around(
        resource,
        None,
        (Operation::Read, local.0, local.1),
        CallOptions::default(),
        RunOptions::default(),
    );
    let resource = request.resource.clone();
    (request, resource)
}

/// Fails the run of a request by a panic. It cannot be posted again, and what it uses is not freed.
fn assert_over_after(panic: impl FnOnce(&Request)) {
    let (request, resource) = request();
    assert!(request.completion.claim());
    panic(&request);
    assert_eq!(request.poll().unwrap_err().status(), Status::Panic);
    assert_eq!(request.post(b"").unwrap_err().status(), Status::InvalidState);
    assert_eq!(request.poll().unwrap_err().status(), Status::Panic, "the run before");
    drop(request);
    assert!(Arc::strong_count(&resource) > 1);
}

#[test]
fn a_request_whose_post_panics_is_not_posted_again() {
    assert_over_after(|request| {
        let open = left_open(|| panic!("deliberate")).unwrap();
        request.go_on_after(open, None, None).unwrap();
    });
}

#[test]
fn a_request_whose_step_panics_is_not_posted_again() {
    assert_over_after(|request| {
        let run =
            RequestRun::new(request.resource.clone(), Posting::Done, request.ticket(None).unwrap().start());
        panic_in_step(Box::new(run));
    });
}
