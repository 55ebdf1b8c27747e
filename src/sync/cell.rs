//! A cell as loom has one, which sees whether its uses exclude each other; here nobody looks.

use std::cell;

#[derive(Debug)]
pub struct UnsafeCell<T>(cell::UnsafeCell<T>);

/// To read the value.
pub struct ConstPtr<T>(*const T);

/// To write the value.
pub struct MutPtr<T>(*mut T);

impl<T> UnsafeCell<T> {
    pub const fn new(value: T) -> Self {
        Self(cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub const fn get(&self) -> ConstPtr<T> {
        ConstPtr(self.0.get())
    }

    #[inline(always)]
    pub const fn get_mut(&self) -> MutPtr<T> {
        MutPtr(self.0.get())
    }
}

impl<T> ConstPtr<T> {
    /// # Safety
    ///
    /// The cell lives as long as the result, and nobody writes meanwhile.
    #[inline(always)]
    pub const unsafe fn deref<'c>(&self) -> &'c T {
        // SAFETY: the same contract.
        unsafe { &*self.0 }
    }
}

impl<T> MutPtr<T> {
    /// # Safety
    ///
    /// The cell lives as long as the result, and nobody else reads or writes meanwhile.
    #[inline(always)]
    pub const unsafe fn deref<'c>(&self) -> &'c mut T {
        // SAFETY: the same contract.
        unsafe { &mut *self.0 }
    }
}
