// SPDX-License-Identifier: Apache-2.0
//! Replays the records of row 19 (`bench/results/*/19-regret*.json`): for each point, the measured duration of the method that the
//! model chooses, relative to the best measured one. Only points of whole blocks, because a record does not say how the caches of
//! engines are laid out.

use super::*;
use crate::copy::gpu::device::staging::staging_parts;
use crate::copy::gpu::launch;
use crate::copy::gpu::rates::{DEFAULT, DirectionRates, FROM_HOST, Rates};
use crate::engine::cost::gpu::model::is_quick;

const MULTIPROCESSORS: u32 = 132;
const METHODS: [(&str, TransferMethod); 4] = [
    ("CUDA copy", TransferMethod::CudaCopy),
    ("CUDA batch", TransferMethod::CudaBatch),
    ("CUDA kernel", TransferMethod::CudaKernel),
    ("CUDA staged", TransferMethod::CudaStaged),
];

/// The rates of the H100 host (`bench/notes/19-regret.md`), with the duration per copy of a batch on its CPU.
pub(super) fn h100(cpu: f64) -> Rates {
    Rates {
        to_device: DirectionRates { link: 55.3e9, batched: cpu, kernel: 51.5e9, cta: 33e9 },
        to_host: DirectionRates { link: 55.0e9, batched: cpu, kernel: 52.3e9, cta: 41.6e9 },
        on_device: DirectionRates { link: 1543e9, batched: 4.28 * US, kernel: 1361e9, cta: 45e9 },
        pageable: 10.8e9,
        copy: 2.2 * US,
        kernel_start: 10.2 * US,
        ..DEFAULT
    }
}

/// The rates of an H200 host.
fn h200(cpu: f64) -> Rates {
    Rates {
        to_device: DirectionRates { link: 56.0e9, batched: FROM_HOST * cpu, kernel: 51.8e9, cta: 32.5e9 },
        to_host: DirectionRates { link: 55.9e9, batched: cpu, kernel: 52.9e9, cta: 45e9 },
        on_device: DirectionRates { link: 2220e9, batched: 3.9 * US, kernel: 1990e9, cta: 46e9 },
        pageable: 10.2e9,
        copy: 2.42 * US,
        kernel_start: 8.5 * US,
        ..DEFAULT
    }
}

/// A recorded point: the case that the model sees, and measured microseconds of each method.
struct Point {
    case: CopyCase,
    measured: Vec<(TransferMethod, f64)>,
    /// Seconds of the CPU per copy of a batch to the host, if it was what this point's batch took.
    cpu: Option<f64>,
}

/// Copies from which the duration of a batch shows the speed of the CPU.
const MANY: u64 = 512;

/// The text of a field, up to the next quote or comma.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) = line.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name} in {line}"));
    let end = match rest.strip_prefix('"') {
        Some(text) => return text.split('"').next().unwrap(),
        None => rest.find([',', '}']).unwrap(),
    };
    &rest[..end]
}

impl Point {
    fn parse(line: &str, rates: &Rates) -> Option<Self> {
        if !line.contains("\"us\":") || !["listed", "blocks"].contains(&field(line, "shape")) {
            return None;
        }
        let number = |name| field(line, name).parse::<u64>().unwrap();
        let (piece, blocks, bytes) = (number("piece_bytes"), number("blocks"), number("bytes"));
        let direction = match field(line, "direction") {
            "H2D" => CopyDirection::ToDevice,
            _ => CopyDirection::ToHost,
        };
        let computes = field(line, "compute") != "idle, as kvmem is told";
        let busy = field(line, "compute_estimate")
            .strip_prefix("keeps the GPU ")
            .map_or(0.0, |text| text.split('%').next().unwrap().parse::<f64>().unwrap() / 100.0);
        let limited = |computes| {
            let size = if computes { 128 << 20 } else { 64 << 20 };
            (size / staging_parts(computes), staging_parts(computes))
        };
        let (part, parts) = limited(computes);
        let chunks = bytes.div_ceil(part);
        // Half of the blocks move, so that every second one follows another, in host order.
        let copies = match field(line, "host") {
            "contiguous" => 1,
            "scattered" => blocks.div_ceil(2),
            _ => blocks.div_ceil(16),
        };
        let staged = Staged {
            chunk: part.min(bytes),
            parts,
            copies: copies.max(chunks),
            more_launches: 0,
            are_batched: true,
            is_quick: is_quick(chunks as usize, chunks as usize, copies as usize),
        };
        let ctas = match computes {
            true => super::super::ctas::ctas_beside(
                direction,
                MULTIPROCESSORS,
                piece,
                rates.in_direction(direction),
            ),
            false => launch::ctas(direction, false, MULTIPROCESSORS, piece),
        };
        let case = CopyCase {
            direction,
            bytes,
            moves: blocks,
            access: KernelAccess { moves: blocks, spans: [blocks; 2], transposed: 0 },
            is_pageable: false,
            computes,
            busy,
            ctas,
            row_calls: 0,
            staged: (bytes >= 256 << 10).then_some(staged),
        };
        // The chosen method was measured twice. A forced one that was interrupted in its first turn was not measured again.
        let chosen = bytes as f64 / field(line, "median").parse::<f64>().unwrap() / 1e3;
        let measured = field(line, "us").split("; ").filter_map(|each| {
            let (name, method) = METHODS.iter().find(|(name, _)| each.starts_with(name))?;
            let us: f64 = each[name.len()..].split_whitespace().next()?.parse().ok()?;
            Some((*method, if *name == field(line, "path") { us.min(chosen) } else { us }))
        });
        let measured: Vec<_> = measured.collect();
        let batch = measured.iter().find(|(method, _)| *method == TransferMethod::CudaBatch);
        let cpu = batch.map(|(_, us)| us * US).filter(|seconds| {
            blocks >= MANY && *seconds > 1.2 * bytes as f64 / rates.in_direction(direction).link
        });
        let from_host = if direction == CopyDirection::ToDevice { FROM_HOST } else { 1.0 };
        let cpu = cpu.map(|seconds| seconds / blocks as f64 / from_host);
        Some(Self { case, measured, cpu })
    }

    /// Whether the CPU of the host was as fast as that, as far as the point shows, to a quarter.
    fn is_of(&self, cpu: f64) -> bool {
        self.cpu.is_none_or(|measured| (0.8..=1.25).contains(&(cpu / measured)))
    }

    fn regret_of(&self, chosen: TransferMethod) -> f64 {
        let best = self.measured.iter().map(|(_, us)| *us).fold(f64::INFINITY, f64::min);
        self.measured.iter().find(|(method, _)| *method == chosen).map_or(f64::INFINITY, |(_, us)| us / best)
    }

    fn chosen(&self, rates: &Rates) -> TransferMethod {
        let methods = self
            .measured
            .iter()
            .map(|(method, _)| Candidate::new(*method, seconds(*method, &self.case, rates)));
        best(&methods.collect::<Vec<_>>(), &self.case, rates).unwrap()
    }
}

/// The median, the 95th percentile, and the greatest.
fn summary(regrets: &mut [f64]) -> [f64; 3] {
    regrets.sort_by(f64::total_cmp);
    [regrets[regrets.len() / 2], regrets[regrets.len() * 95 / 100], regrets[regrets.len() - 1]]
}

/// What the CPU of a host takes per copy of a batch varies, and is known to a quarter at best: the choice must be good for each of these.
/// The CPU of a host has several speeds during a run: points that show another one are left out.
#[test]
fn at_recorded_points_the_choice_is_good_whatever_of_its_speeds_the_cpu_has() {
    let records = [
        ("H100", include_str!("../../../../../bench/results/h100/19-regret.json"), h100 as fn(f64) -> Rates),
        ("H200", include_str!("../../../../../bench/results/h200/19-regret.json"), h200),
        ("H200, random", include_str!("../../../../../bench/results/h200/19-regret-random.json"), h200),
    ];
    for (name, text, rates_of) in records {
        for cpu in [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0] {
            let rates = rates_of(cpu * US);
            let points = text.lines().filter_map(|line| Point::parse(line, &rates));
            let points: Vec<_> = points.filter(|point| point.is_of(cpu * US)).collect();
            let regrets = points.iter().map(|point| point.regret_of(point.chosen(&rates)));
            let [median, p95, worst] = summary(&mut regrets.collect::<Vec<_>>());
            println!("{name}, {cpu} us: {} points, regret {median:.3} {p95:.3} {worst:.3}", points.len());
            assert!(median <= 1.02 && worst <= 1.10, "{name}, {cpu} us: median {median}, worst {worst}");
        }
    }
}
