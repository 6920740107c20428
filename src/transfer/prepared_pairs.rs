// SPDX-License-Identifier: Apache-2.0
//! One list of pairs of a transfer, prepared for an engine: plans it, and selects the engine or reuses the previous one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::layout_pair::LayoutPair;
use super::measured::PhaseEstimates;
use super::transfer_request::Step;
use super::verify::Verification;
use crate::base::{Result, deadline_of, ensure, fail};
use crate::cuda::quiet::Capture;
use crate::cuda::stream::CallerStream;
use crate::engine::explain::{RunEstimate, Summary};
use crate::engine::preferences::{Ending, Preferences};
use crate::engine::prepare::prepare;
use crate::engine::runs::{self, Needs};
use crate::engine::{Candidate, Engine, OnStreams, time_limit};
use crate::layout::Layout;
use crate::plan::{Plan, PlannedBlocks, TokenTables};
use crate::run::completion::{Account, Limit};
use crate::run::learned::Record;
use crate::run::method::TransferMethod;
use crate::run::statistics::CountedAs;
use crate::run::used_bytes::UsedBytes;
use crate::run::{ExpectedEpochs, Ticket};

/// The inputs for preparing an engine that do not depend on the pairs.
pub(super) struct Route {
    pub pair: Arc<LayoutPair>,
    pub preferences: Preferences,
}

impl Route {
    /// Plans some pairs between two layouts, and prepares the engine for them. Reuses the engine of the previous pairs if
    /// possible. `spare` is memory for the plan.
    pub fn prepare(
        &self,
        sides @ [source, destination]: [&Arc<Layout>; 2],
        step: Step<'_>,
        before: Option<&PreparedPairs>,
        spare: Option<Arc<PlannedBlocks>>,
    ) -> Result<PreparedPairs> {
        self.ensure_notifiable(&step)?;
        // The state of an engine in a CUDA context is lost with it. If the memory is not, an engine is selected again.
        let before = before.filter(|before| before.needs.ensure_alive().is_ok());
        if before.is_none() {
            self.pair.contexts.ensure_alive()?;
        }
        step.ensure_checkable(self.preferences.by_layer)?;
        let plan = match &step.tables {
            Some(tables) => Plan::from_tokens(&self.pair.outline, tables, spare)?,
            None => Plan::new(&self.pair.outline, step.pairs, spare)?,
        };
        let kept = plan.clone();
        let expected = step.epochs.map(|epochs| match &step.tables {
            Some(tables) => {
                let entries = self.pair.outline.source_entries(tables)?;
                ExpectedEpochs::of_table(source, tables.sides[0].blocks, entries, epochs)
            }
            None => ExpectedEpochs::of_pairs(source, step.pairs, epochs),
        });
        let epochs = expected.transpose()?.map(Arc::new);
        self.ensure_compared_before_notified(&step, epochs.as_deref())?;
        let touched = runs::touched(source, destination, &plan);
        // What the engine can do itself when it has moved the last byte, unless it is followed by more.
        let is_last = step.checksums.is_none() && !step.returns_checksums;
        let ending = Ending {
            verifies: step.verifies,
            notification: step.notification.as_ref().filter(|_| is_last).cloned(),
            epochs: epochs.clone().filter(|epochs| epochs.is_remote()),
        };
        let before = before.map(|before| &*before.engine);
        let prepared_by = deadline_of(step.timeout);
        let preferences = Preferences { prepared_by, ..self.preferences.clone() };
        let engine = prepare(self.pair.method, sides, plan, &preferences, ending, before)?;
        let method = engine.method();
        let by_engine = step.verifies && engine.verifies();
        let verification =
            Verification::for_step(sides, &step, &kept, (&self.pair, &self.preferences), by_engine)?
                .map(Arc::new);
        let limit =
            step.timeout.map(|after| Arc::new(limited(after, &time_limit::described(method, sides, &kept))));
        let record = engine.learns_from_runs().then(|| self.pair.record(method, source, destination));
        let used = Some(UsedBytes::of_plan(&kept, sides, [true; 2], &self.pair.contexts));
        let account = Account {
            bytes: kept.bytes(),
            user_data: step.user_data,
            // With a check of the blocks, the duration is not that of the method alone.
            record: record.clone().filter(|_| !step.is_checked()),
            used,
            limit,
            counted: Some(CountedAs { method: Some(method), direction: self.pair.direction }),
        };
        let needs = Needs::new(&*engine, touched, self.pair.contexts.clone(), account);
        let recorded = [
            record.as_ref().map(|record| RunEstimate::recorded(record, kept.bytes())),
            verification.as_ref().and_then(|verification| verification.estimate()),
        ];
        let was_submitted = AtomicBool::new(false);
        Ok(PreparedPairs {
            method,
            plan: kept,
            engine,
            needs,
            record,
            recorded,
            verification,
            epochs,
            was_submitted,
        })
    }

    /// Fails if the peer would be notified before the epochs are compared for the last time, which is after the last byte.
    fn ensure_compared_before_notified(
        &self,
        step: &Step<'_>,
        epochs: Option<&ExpectedEpochs>,
    ) -> Result<()> {
        ensure!(
            step.notification.is_none() || epochs.is_none_or(ExpectedEpochs::is_remote),
            Unsupported,
            "a run that expects epochs of a source in this process or mapped here sends no notification, which could arrive before \
             they are compared; call kvmem_agent_notify after the run"
        );
        Ok(())
    }

    /// Prepares a run that moves nothing itself, and ends at once: what follows it moves the blocks.
    pub fn prepare_followed(
        &self,
        sides @ [source, destination]: [&Arc<Layout>; 2],
        FollowedBlocks { tables, step, moved: [moved, all], is_written }: FollowedBlocks<'_>,
    ) -> Result<PreparedPairs> {
        self.pair.contexts.ensure_alive()?;
        let plan = Plan::from_tokens(&self.pair.outline, &tables, None)?;
        let method = self.pair.method;
        let described = || time_limit::described(method, sides, &plan);
        let limit = step.timeout.map(|after| Arc::new(limited(after, &described())));
        let used = Some(UsedBytes::of_plan(&plan, sides, [!is_written, is_written], &self.pair.contexts));
        let bytes = plan.bytes() / all * moved;
        let counted = Some(CountedAs { method: Some(method), direction: self.pair.direction });
        let account = Account { bytes, user_data: step.user_data, limit, used, counted, record: None };
        let engine = Box::new(Nothing { method, moves: plan.pieces() });
        let touched = runs::touched(source, destination, &plan);
        let needs = Needs::new(&*engine, touched, self.pair.contexts.clone(), account);
        let (record, recorded, verification, epochs) = (None, [None; 2], None, None);
        let was_submitted = AtomicBool::new(true);
        Ok(PreparedPairs {
            method,
            plan,
            engine,
            needs,
            record,
            recorded,
            verification,
            epochs,
            was_submitted,
        })
    }

    /// Fails if there is a notification and no remote agent.
    fn ensure_notifiable(&self, step: &Step<'_>) -> Result<()> {
        ensure!(
            step.notification.is_none() || self.pair.has_peer,
            InvalidArgument,
            "a notification goes to a remote agent, and neither layout is remote"
        );
        Ok(())
    }
}

/// Tokens that are moved by what follows a run.
pub(super) struct FollowedBlocks<'a> {
    pub tables: TokenTables<'a>,
    /// Without blocks.
    pub step: Step<'a>,
    /// How many of how many equal parts of the tables are moved.
    pub moved: [u64; 2],
    /// The tables have the blocks of the destination that are written, rather than those of the source that are read.
    pub is_written: bool,
}

/// Moves nothing.
struct Nothing {
    method: TransferMethod,
    moves: u64,
}

impl Engine for Nothing {
    fn method(&self) -> TransferMethod {
        self.method
    }

    fn candidates(&self) -> Vec<Candidate> {
        Vec::new()
    }

    fn moves(&self) -> Result<u64> {
        Ok(self.moves)
    }

    fn submit(&self, ticket: Ticket) -> Result<()> {
        ticket.start().end(Ok(()));
        Ok(())
    }
}

/// A list of pairs, prepared for an engine.
pub(super) struct PreparedPairs {
    /// The method that the engine takes.
    pub method: TransferMethod,
    pub plan: Plan,
    pub engine: Box<dyn Engine>,
    pub needs: Needs,
    /// Throughput of earlier runs by the same method, if no model predicts it.
    record: Option<Arc<Record>>,
    /// What earlier runs said of these blocks when they were prepared: of a run, and of the check after it.
    recorded: [Option<RunEstimate>; 2],
    /// Checks the blocks after the last byte.
    pub verification: Option<Arc<Verification>>,
    /// What the source's blocks are expected to have.
    pub epochs: Option<Arc<ExpectedEpochs>>,
    /// The last run is of these pairs.
    pub was_submitted: AtomicBool,
}

impl PreparedPairs {
    /// The engine's operations on streams. Fails if it has none.
    pub fn on_streams(&self) -> Result<&dyn OnStreams> {
        match self.engine.on_streams() {
            Some(on_streams) => Ok(on_streams),
            None => {
                fail!(Unsupported, "{} does not run on streams; submit the transfer without one", self.method)
            }
        }
    }

    /// Fails for a stream that the transfer can't be submitted on. Returns its capture, if it is being captured into a graph.
    pub fn check_stream(&self, stream: CallerStream) -> Result<Option<Capture>> {
        let on_streams = self.on_streams()?;
        // Checked first: the driver can't be queried about a stream of a context that no longer exists.
        self.needs.ensure_alive()?;
        on_streams.check_stream(stream)
    }

    /// The size of the transfer. Fails if its requests cannot be counted.
    pub fn summary(&self) -> Result<Summary> {
        let (moves, requests) = (self.engine.moves()?, self.engine.requests()?);
        Ok(Summary {
            bytes: self.needs.account().bytes,
            pieces: self.plan.pieces(),
            moves,
            requests,
            excess: self.engine.excess()?,
        })
    }

    /// The loops that are copied; those of the first layer if layers are moved one by one.
    pub fn loops(&self, by_layer: bool) -> String {
        if by_layer { self.plan.layer(0).description() } else { self.plan.description() }
    }

    /// The methods that were compared, or the only one, with the durations that models estimate.
    pub fn candidates(&self) -> Vec<Candidate> {
        self.engine.candidates()
    }

    /// The duration of the taken method, if it is estimated from earlier runs. Before the first it is that of the model, if there is
    /// one, and otherwise a usual one.
    pub fn run_estimate(&self) -> Option<RunEstimate> {
        let recorded = RunEstimate::recorded(self.record.as_ref()?, self.plan.bytes());
        Some(or_modelled(recorded, self.modelled().as_ref()))
    }

    /// What the phases of the last run were estimated to take when its blocks were prepared. `None` if it had other blocks.
    pub fn phase_estimates(&self) -> Option<PhaseEstimates> {
        if !self.was_submitted.load(Ordering::Acquire) {
            return None;
        }
        let ([run, verified], modelled) = (self.recorded, self.modelled());
        let model = |seconds| RunEstimate { seconds, assumed: false };
        let whole = match run {
            Some(recorded) => Some(or_modelled(recorded, modelled.as_ref())),
            None => modelled.as_ref().map(|taken| model(taken.seconds)),
        };
        let gathering = modelled.map_or(0.0, |taken| taken.gathering);
        let moved =
            |whole: RunEstimate| RunEstimate { seconds: (whole.seconds - gathering).max(0.0), ..whole };
        let gathered = (gathering > 0.0).then(|| model(gathering));
        Some(PhaseEstimates { gathered, moved: whole.map(moved), verified })
    }

    /// What the model says of the taken method, if there is a model.
    fn modelled(&self) -> Option<Candidate> {
        let taken = self.candidates().into_iter().find(|candidate| candidate.method == self.method)?;
        (taken.seconds > 0.0).then_some(taken)
    }

    /// A line with the conditions of the estimates, or nothing.
    pub fn conditions(&self) -> String {
        self.engine.conditions()
    }
}

fn or_modelled(recorded: RunEstimate, modelled: Option<&Candidate>) -> RunEstimate {
    let seconds = modelled.filter(|_| recorded.assumed).map_or(recorded.seconds, |taken| taken.seconds);
    RunEstimate { seconds, ..recorded }
}

fn limited(after: Duration, method: &str) -> Limit {
    let advice = "The rest was cancelled. Increase run_timeout_ns, or find what delays the method. Parts that had begun use the \
                  memory until they end: then the transfer can be submitted again";
    Limit { after, what: format!("the transfer by {method}"), advice: advice.to_string() }
}
