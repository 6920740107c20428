// SPDX-License-Identifier: Apache-2.0
//! What an engine keeps for a layout, such as staging memory, so that it is not created for each transfer.

use std::any::Any;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use super::Layout;
use super::caches::Forget;
use crate::base::{LogId, Mutex, MutexGuard, PerProcess};

/// At most one value per layout. It is dropped with its layout, unless something else holds it, and must not hold the layout.
pub struct LayoutCache<T>(Values, PhantomData<fn() -> T>);

/// Values of any type, so that the map is compiled once.
struct Values(PerProcess<Mutex<BTreeMap<LogId, Value>>>);

type Value = Arc<dyn Any + Send + Sync>;

impl<T: Send + Sync + 'static> Default for LayoutCache<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync + 'static> LayoutCache<T> {
    /// No values.
    pub const fn new() -> Self {
        Self(Values(PerProcess::new()), PhantomData)
    }

    pub fn get(&self, layout: &Layout) -> Option<Arc<T>> {
        of_type(self.0.all().get(&layout.log_id()))
    }

    /// The value of a layout. If there is none, the default.
    pub fn get_or_default(&'static self, layout: &Layout) -> Arc<T>
    where
        T: Default,
    {
        let mut all = self.0.all();
        let known = of_type(all.get(&layout.log_id()));
        let value = known.unwrap_or_else(|| {
            let value = Arc::<T>::default();
            all.insert(layout.log_id(), value.clone());
            value
        });
        drop(all);
        layout.caches.add(&self.0);
        value
    }

    pub fn put(&'static self, layout: &Layout, value: Arc<T>) {
        let before = self.0.all().insert(layout.log_id(), value);
        layout.caches.add(&self.0);
        drop(before);
    }
}

fn of_type<T: Send + Sync + 'static>(value: Option<&Value>) -> Option<Arc<T>> {
    value.cloned()?.downcast().ok()
}

impl Values {
    fn all(&self) -> MutexGuard<'_, BTreeMap<LogId, Value>> {
        self.0.get(Mutex::default).lock()
    }
}

impl Forget for Values {
    fn forget(&self, layout: LogId) {
        let value = self.all().remove(&layout);
        drop(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Arrangement, Dimensions};

    static NUMBERS: LayoutCache<u8> = LayoutCache::new();

    #[test]
    fn a_value_is_dropped_when_it_is_replaced_or_with_its_layout() {
        let layout = || Layout::in_host(Dimensions::small(), Arrangement::FULLY_CONTIGUOUS);
        let (first, second) = (layout(), layout());
        assert!(NUMBERS.get(&first).is_none());
        let [one, two, other] = [1, 2, 3].map(Arc::new);
        NUMBERS.put(&first, one.clone());
        NUMBERS.put(&second, other.clone());
        assert_eq!((NUMBERS.get(&first).as_deref(), *NUMBERS.get_or_default(&second)), (Some(&1), 3));
        NUMBERS.put(&first, two.clone());
        assert_eq!(Arc::strong_count(&one), 1);
        drop(first);
        assert_eq!((Arc::strong_count(&two), Arc::strong_count(&other)), (1, 2));
        drop(second);
        assert_eq!(Arc::strong_count(&other), 1);
    }
}
