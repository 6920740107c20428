// SPDX-License-Identifier: Apache-2.0
//! Other processes: this test program started again, in a role.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A user that is not this one.
pub const NOBODY: u32 = 65534;
const ROLE: &str = "KVMEM_TEST_ROLE";

/// A process in a role. Killed and reaped when dropped.
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

    /// Starts a role that has this socket in place of its standard error.
    pub fn start_with_error(socket: OwnedFd, role: &str, arguments: &[(&str, String)]) -> Self {
        Self(command(role, arguments).stderr(socket).spawn().unwrap())
    }

    /// Waits until it says that it has come where it should be.
    pub fn await_ready(&mut self) {
        let mut lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("READY")), "the role ended before it was ready");
    }

    /// Lets it go on from where it should be.
    pub fn go_on(&mut self) {
        drop(self.0.stdin.take());
    }

    /// Kills it as a crash would, and reaps it.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits until it has ended, well.
    pub fn finish(mut self) {
        let mut said = String::new();
        if let Some(mut output) = self.0.stdout.take() {
            output.read_to_string(&mut said).unwrap();
        }
        assert!(self.0.wait().unwrap().success(), "{said}");
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

/// What a role was given.
pub fn argument(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// Tells the test that the role has come where it should be, and waits to be killed or told to go on.
pub fn ready() {
    println!("READY");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Where roles begin. Without a role there is nothing to do.
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
