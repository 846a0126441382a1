//! conform

pub mod lang;
