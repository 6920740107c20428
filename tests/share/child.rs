// SPDX-License-Identifier: Apache-2.0
//! Other processes: this test program, started again with a role.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Another user.
pub const OTHER_USER: u32 = 65534;
const ROLE: &str = "KVMEM_TEST_ROLE";

/// A process with a role. It is killed and reaped when dropped.
pub struct Role(Child);

impl Role {
    /// Starts a role with its arguments, as environment variables.
    pub fn start(role: &str, arguments: &[(&str, String)]) -> Self {
        Self::start_as(None, role, arguments)
    }

    pub fn start_as(user: Option<u32>, role: &str, arguments: &[(&str, String)]) -> Self {
        let mut command = command(role, arguments);
        if let Some(user) = user {
            command.uid(user);
        }
        Self(command.spawn().unwrap())
    }

    /// Starts a role with this socket as its standard error.
    pub fn start_with_error(socket: OwnedFd, role: &str, arguments: &[(&str, String)]) -> Self {
        Self(command(role, arguments).stderr(socket).spawn().unwrap())
    }

    /// Waits until the role calls [`ready`].
    pub fn await_ready(&mut self) {
        let mut lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("READY")), "the role ended before it was ready");
    }

    /// Makes [`ready`] return in the role.
    pub fn resume(&mut self) {
        drop(self.0.stdin.take());
    }

    /// Kills the process like a crash, and reaps it.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits until the process has ended, and checks that it succeeded.
    pub fn finish(mut self) {
        let mut printed = String::new();
        if let Some(mut output) = self.0.stdout.take() {
            output.read_to_string(&mut printed).unwrap();
        }
        assert!(self.0.wait().unwrap().success(), "{printed}");
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(role: &str, arguments: &[(&str, String)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child::in_a_role", "--nocapture"]);
    command.env(ROLE, role).envs(arguments.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Returns an argument of the role.
pub fn argument(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// Reports to the test that the role has executed its steps, and waits until the process is killed or resumed.
pub fn ready() {
    println!("READY");
    let _ = std::io::stdin().read(&mut [0]);
}

/// The entry point of roles. Does nothing without a role.
#[test]
fn in_a_role() {
    match std::env::var(ROLE).as_deref() {
        Err(_) => {}
        Ok("half a share") => super::socket::half_a_share(),
        Ok("many files in flight") => super::socket::many_files_in_flight(),
        Ok("stop at a step") => super::broker_clients::stop_at_a_step(),
        Ok("fetch as another user") => super::broker::fetch_as_another_user(),
        Ok("many fetches") => super::broker_clients::many_fetches(),
        Ok("serve until killed") => super::broker::serve_until_killed(),
        Ok(role) => panic!("there is no role {role}"),
    }
}
