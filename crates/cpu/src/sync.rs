//! Where the queues' locks, channels and threads come from: the standard library, or, with the feature `shuttle`, a
//! checker that runs them in every order it can think of.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{
    sync::{
        Condvar, Mutex, MutexGuard,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    sync::{
        Condvar, Mutex, MutexGuard,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
};
