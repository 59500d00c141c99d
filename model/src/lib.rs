//! A software ConnectX function.
