// SPDX-License-Identifier: Apache-2.0
//! A model of the protocol of epochs: an owner that reuses a block, and a reader. Every order of their steps is tried, with a memory
//! in which stores become visible in any order that the fences permit.
//!
//! The block has two words. A store goes into the owner's buffer, and reaches memory later: in any order, except that a fence makes
//! all stores before it reach memory before those after it, and that stores to one word keep their order. The reader's loads are executed in any order
//! except that a fence makes those before it come before those after it. That is weaker than what processors and devices do.

use std::collections::HashSet;

/// The words: the epoch, what was published, and the two of the block.
const EPOCH: usize = 0;
const PUBLISHED: usize = 1;
const BLOCK: [usize; 2] = [2, 3];
/// How often the owner reuses the block.
const USES: u8 = 3;

/// What a protocol leaves out.
#[derive(Clone, Copy, Default)]
struct Omitted {
    /// The owner raises the epoch after it has written.
    raise_first: bool,
    /// The fence of the owner between the raise and the bytes.
    owner_fence: bool,
    /// The owner publishes before the bytes are complete.
    publish_last: bool,
    /// The reader's second look.
    second_look: bool,
    /// The fence of the reader before it.
    reader_fence: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Store {
    Word(usize, u8),
    Fence,
}

/// The stores of the owner, in the order of its program.
fn owner(omitted: Omitted) -> Vec<Store> {
    let mut stores = Vec::new();
    for epoch in 1..=USES {
        let raise = [Store::Word(EPOCH, epoch)];
        let fence = if omitted.owner_fence { vec![] } else { vec![Store::Fence] };
        let bytes = BLOCK.map(|word| Store::Word(word, epoch));
        let publish = [Store::Fence, Store::Word(PUBLISHED, epoch), Store::Fence];
        let steps: [&[Store]; 4] = match (omitted.raise_first, omitted.publish_last) {
            (true, _) => [&bytes, &fence, &raise, &publish],
            (_, true) => [&raise, &fence, &publish, &bytes],
            _ => [&raise, &fence, &bytes, &publish],
        };
        stores.extend(steps.into_iter().flatten().copied());
    }
    stores
}

/// The loads of the reader after that of what was published: those of a group are executed in any order.
fn reader(omitted: Omitted) -> Vec<Vec<usize>> {
    let mut groups = vec![vec![EPOCH], BLOCK.to_vec()];
    if !omitted.second_look {
        match omitted.reader_fence {
            true => groups[1].push(EPOCH),
            false => groups.push(vec![EPOCH]),
        }
    }
    groups
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    memory: [u8; 4],
    /// Stores that have not reached memory.
    left: Vec<Store>,
    expected: Option<u8>,
    /// Loads that were not executed, by group.
    loads: Vec<Vec<usize>>,
    bytes: Vec<u8>,
    is_stale: bool,
}

impl State {
    fn next(&self) -> Vec<Self> {
        let mut next = Vec::new();
        for (index, store) in self.left.iter().enumerate() {
            let Store::Word(word, value) = *store else {
                if index == 0 {
                    next.push(Self { left: self.left[1..].to_vec(), ..self.clone() });
                }
                break;
            };
            let is_first = !self.left[..index]
                .iter()
                .any(|before| matches!(before, Store::Word(same, _) if *same == word));
            if is_first {
                let mut after = self.clone();
                after.left.remove(index);
                after.memory[word] = value;
                next.push(after);
            }
        }
        let Some(expected) = self.expected else {
            next.push(Self { expected: Some(self.memory[PUBLISHED]), ..self.clone() });
            return next;
        };
        let Some(group) = self.loads.first() else { return next };
        for index in 0..group.len() {
            let mut after = self.clone();
            let word = after.loads[0].remove(index);
            if after.loads[0].is_empty() {
                after.loads.remove(0);
            }
            match word {
                EPOCH => after.is_stale |= self.memory[EPOCH] != expected,
                _ => after.bytes.push(self.memory[word]),
            }
            next.push(after);
        }
        next
    }

    /// Whether the read is OK, and has a byte of another epoch.
    fn is_wrong(&self) -> bool {
        let is_over = self.expected.is_some() && self.loads.is_empty();
        is_over && !self.is_stale && self.bytes.iter().any(|byte| Some(*byte) != self.expected)
    }
}

/// Number of wrong and of right reads in all orders.
fn explore(omitted: Omitted) -> [usize; 2] {
    let start = State {
        memory: [0; 4],
        left: owner(omitted),
        expected: None,
        loads: reader(omitted),
        bytes: Vec::new(),
        is_stale: false,
    };
    let mut known = HashSet::from([start.clone()]);
    let mut open = vec![start];
    let mut counts = [0; 2];
    while let Some(state) = open.pop() {
        let is_right = state.loads.is_empty() && !state.is_stale && !state.is_wrong();
        counts[0] += usize::from(state.is_wrong());
        counts[1] += usize::from(is_right);
        open.extend(state.next().into_iter().filter(|next| known.insert(next.clone())));
    }
    counts
}

#[test]
fn no_order_of_the_steps_gives_bytes_of_another_epoch() {
    let [wrong, right] = explore(Omitted::default());
    assert!(wrong == 0 && right > 0, "{wrong} wrong and {right} right");
}

#[test]
fn each_step_is_needed() {
    let omissions = [
        Omitted { raise_first: true, ..Omitted::default() },
        Omitted { owner_fence: true, ..Omitted::default() },
        Omitted { publish_last: true, ..Omitted::default() },
        Omitted { second_look: true, ..Omitted::default() },
        Omitted { reader_fence: true, ..Omitted::default() },
    ];
    for (index, omitted) in omissions.into_iter().enumerate() {
        assert!(explore(omitted)[0] > 0, "omission {index} gives no wrong read");
    }
}
