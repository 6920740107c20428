// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::*;

/// Every type that a field may have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sample {
    small: u8,
    number: u64,
    signed: i32,
    is_set: bool,
    text: String,
    bytes: ByteBuf,
    #[serde(with = "serde_bytes")]
    id: [u8; 4],
    numbers: [u64; 3],
    pairs: Vec<(String, u32)>,
    maybe: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    absent: Option<Box<Sample>>,
    which: Variants,
    outcome: Result<(), String>,
}

type Result<T, E> = std::result::Result<T, E>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Variants {
    Unit,
    Newtype(u32),
    Tuple(u32, String),
    Struct { first: u64, second: Option<String> },
}

fn any_variant() -> impl Strategy<Value = Variants> {
    prop_oneof![
        Just(Variants::Unit),
        any::<u32>().prop_map(Variants::Newtype),
        any::<(u32, String)>().prop_map(|(number, text)| Variants::Tuple(number, text)),
        any::<(u64, Option<String>)>().prop_map(|(first, second)| Variants::Struct { first, second }),
    ]
}

fn any_flat_sample() -> impl Strategy<Value = Sample> {
    let plain = any::<(u8, u64, i32, bool, String, Vec<u8>, [u8; 4], [u64; 3])>();
    let others = any::<(Vec<(String, u32)>, Option<u64>, Result<(), String>)>();
    (plain, others, any_variant()).prop_map(|(plain, others, which)| {
        let (small, number, signed, is_set, text, bytes, id, numbers) = plain;
        let (pairs, maybe, outcome) = others;
        let bytes = ByteBuf::from(bytes);
        Sample {
            small,
            number,
            signed,
            is_set,
            text,
            bytes,
            id,
            numbers,
            pairs,
            maybe,
            absent: None,
            which,
            outcome,
        }
    })
}

fn any_sample() -> impl Strategy<Value = Sample> {
    (any_flat_sample(), prop::option::of(any_flat_sample()))
        .prop_map(|(sample, other)| Sample { absent: other.map(Box::new), ..sample })
}

fn written(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    bytes
}

fn message<T: DeserializeOwned + std::fmt::Debug>(bytes: &[u8]) -> String {
    read::<T>(bytes).unwrap_err().to_string()
}

proptest! {
    #[test]
    fn what_was_written_is_read(sample in any_sample()) {
        prop_assert_eq!(read::<Sample>(&written(&sample)).unwrap(), sample);
    }

    #[test]
    fn damaged_fields_are_an_error_or_those_that_ciborium_reads(
        sample in any_sample(), position in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = written(&sample);
        let position = position.index(bytes.len());
        bytes[position] = byte;
        if let Ok(found) = read::<Sample>(&bytes) {
            prop_assert_eq!(found, ciborium::from_reader::<Sample, _>(&bytes[..]).unwrap());
        }
    }

    #[test]
    fn any_bytes_are_read_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = read::<Sample>(&bytes);
        let _ = read::<de::IgnoredAny>(&bytes);
    }
}

#[test]
fn parts_of_fields_are_an_error() {
    let bytes = written(&("text", 70_000u32, vec![1u8, 2]));
    for length in 0..bytes.len() {
        assert_eq!(message::<(String, u32, Vec<u8>)>(&bytes[..length]), "they are cut off");
    }
}

#[test]
fn bytes_after_the_fields_are_an_error() {
    assert_eq!(message::<u8>(&[0x01, 0x02, 0x03]), "2 bytes follow them");
    assert_eq!(message::<(u8, u8)>(&[0x83, 1, 2, 3]), "an array has too many elements");
}

#[test]
fn items_without_a_length_are_read() {
    let text = [0x7f, 0x62, b'a', b'b', 0x61, b'c', 0xff];
    assert_eq!(read::<String>(&text).unwrap(), "abc");
    assert_eq!(read::<Vec<u8>>(&[0x9f, 1, 2, 0xff]).unwrap(), [1, 2]);
    assert_eq!(read::<(u8, u8)>(&[0x9f, 1, 2, 0xff]).unwrap(), (1, 2));
    assert_eq!(message::<(u8, u8)>(&[0x9f, 1, 2, 3, 0xff]), "an array has too many elements");
    let map = [&[0xbf][..], &written(&"first"), &[7], &written(&"second"), &[0xf6, 0xff]].concat();
    let bytes = [&[0xa1][..], &written(&"Struct"), &map].concat();
    assert_eq!(read::<Variants>(&bytes).unwrap(), Variants::Struct { first: 7, second: None });
}

#[test]
fn tags_are_ignored() {
    assert_eq!(read::<u32>(&[0xc1, 0xd8, 0x20, 0x18, 0x64]).unwrap(), 100);
}

#[test]
fn fields_that_are_not_known_are_ignored() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Known {
        last: u8,
    }
    // A map with an array of maps, a float, an undefined value and text of two parts.
    let unknown = [0x84, 0xa1, 0x01, 0xf5, 0xfb, 0, 0, 0, 0, 0, 0, 0, 0, 0xf7, 0x7f, 0x61, b'a', 0x60, 0xff];
    let bytes = [&[0xa2][..], &written(&"new"), &unknown, &written(&"last"), &[9]].concat();
    assert_eq!(read::<Known>(&bytes).unwrap(), Known { last: 9 });
}

#[test]
fn ignored_items_that_contain_each_other_too_often_are_an_error() {
    let nested = |levels: usize| [vec![0x81; levels], vec![0]].concat();
    assert!(read::<de::IgnoredAny>(&nested(63)).is_ok());
    assert_eq!(message::<de::IgnoredAny>(&nested(64)), "items contain each other too often");
    assert_eq!(message::<de::IgnoredAny>(&nested(1 << 20)), "items contain each other too often");
}

#[test]
fn a_length_that_is_too_large_allocates_nothing() {
    let bytes = [0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    assert_eq!(message::<Vec<u64>>(&bytes), "they are cut off");
    let text = [0x7b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, b'a'];
    assert_eq!(message::<String>(&text), "they are cut off");
}

#[test]
fn other_types_are_an_error() {
    assert_eq!(message::<u32>(&written(&"text")), "a number is expected");
    assert_eq!(message::<i32>(&written(&u64::MAX)), "a signed number is expected");
    assert_eq!(message::<String>(&[0x01]), "text is expected");
    assert_eq!(message::<String>(&[0x61, 0xff]), "a text is not UTF-8");
    assert_eq!(message::<Vec<u8>>(&[0xa0]), "an array is expected");
    assert_eq!(message::<Variants>(&written(&"Newtype")), "a variant has no fields");
    assert_eq!(message::<bool>(&[0xf9, 0, 20]), "true or false is expected", "a float of two bytes");
    assert_eq!(message::<f64>(&written(&1.5)), "no field has this type");
    assert!(message::<u8>(&written(&256u32)).contains("256"));
    assert!(message::<Variants>(&written(&"Other")).contains("Other"));
}
