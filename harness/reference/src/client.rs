//! The client's half of PMI-1.
