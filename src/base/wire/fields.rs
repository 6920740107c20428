// SPDX-License-Identifier: Apache-2.0
//! Reads fields from CBOR. Only what is generic depends on the type of a field; items are read by functions that exist once.
//! The deserializer of ciborium is generic in all of it, which is inlined for each field of each wire form: 5% of the library.

mod items;

use serde::de::{self, DeserializeOwned, DeserializeSeed, Visitor};

pub use items::Damage;
use items::{Elements, Items, Result, major};

/// The fields in some bytes, which contain nothing else.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let mut items = Items::new(bytes);
    let fields = T::deserialize(&mut items)?;
    items.ensure_end()?;
    Ok(fields)
}

impl<'de> de::SeqAccess<'de> for &mut Elements<'_, '_> {
    type Error = Damage;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if self.has_next()? { seed.deserialize(&mut *self.items).map(Some) } else { Ok(None) }
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

impl<'de> de::MapAccess<'de> for &mut Elements<'_, '_> {
    type Error = Damage;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if self.has_next()? { seed.deserialize(&mut *self.items).map(Some) } else { Ok(None) }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        seed.deserialize(&mut *self.items)
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

macro_rules! by {
    ($($method:ident: $item:ident to $visit:ident),+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            visitor.$visit(self.$item()?)
        })+
    };
}

macro_rules! like {
    ($($method:ident($($name:ident: $type:ty),*): $other:ident),+) => {
        $(fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value> {
            self.$other(visitor)
        })+
    };
}

macro_rules! no_field {
    ($($method:ident),+) => {
        $(fn $method<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value> {
            Items::damage("no field has this type")
        })+
    };
}

impl<'de> de::Deserializer<'de> for &mut Items<'_> {
    type Error = Damage;

    by! {
        deserialize_bool: boolean to visit_bool,
        deserialize_u64: unsigned to visit_u64,
        deserialize_i64: signed to visit_i64
    }

    like! {
        deserialize_u8(): deserialize_u64,
        deserialize_u16(): deserialize_u64,
        deserialize_u32(): deserialize_u64,
        deserialize_i8(): deserialize_i64,
        deserialize_i16(): deserialize_i64,
        deserialize_i32(): deserialize_i64,
        deserialize_string(): deserialize_str,
        deserialize_identifier(): deserialize_str,
        deserialize_byte_buf(): deserialize_bytes,
        deserialize_unit_struct(_name: &'static str): deserialize_unit,
        deserialize_tuple(_length: usize): deserialize_seq,
        deserialize_tuple_struct(_name: &'static str, _length: usize): deserialize_seq,
        deserialize_struct(_name: &'static str, _fields: &'static [&'static str]): deserialize_map
    }

    no_field! { deserialize_any, deserialize_f32, deserialize_f64, deserialize_char }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.with_text(|text| visitor.visit_str(text))
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_bytes(&self.string(major::BYTES)?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.is_null()? { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.is_null()? { visitor.visit_unit() } else { Items::damage("null is expected") }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let mut elements = self.elements(major::ARRAY)?;
        let value = visitor.visit_seq(&mut elements)?;
        elements.ensure_end().map(|()| value)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let mut entries = self.elements(major::MAP)?;
        visitor.visit_map(&mut entries)
    }

    /// The name of a variant, or a map from it to its fields.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let has_fields = self.is_variant_with_fields()?;
        visitor.visit_enum(Variant { items: self, has_fields })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.skip()?;
        visitor.visit_unit()
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// A variant, whose name is next.
struct Variant<'i, 'a> {
    items: &'i mut Items<'a>,
    has_fields: bool,
}

impl Variant<'_, '_> {
    fn ensure_fields(&self) -> Result<()> {
        if self.has_fields { Ok(()) } else { Items::damage("a variant has no fields") }
    }
}

impl<'de> de::EnumAccess<'de> for Variant<'_, '_> {
    type Error = Damage;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self)> {
        let name = seed.deserialize(&mut *self.items)?;
        Ok((name, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, '_> {
    type Error = Damage;

    fn unit_variant(self) -> Result<()> {
        if self.has_fields && !self.items.is_null()? {
            return Items::damage("a variant has fields that it should not have");
        }
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        self.ensure_fields()?;
        seed.deserialize(self.items)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value> {
        self.ensure_fields()?;
        de::Deserializer::deserialize_seq(self.items, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.ensure_fields()?;
        de::Deserializer::deserialize_map(self.items, visitor)
    }
}

#[cfg(test)]
mod tests;
