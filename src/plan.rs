//! Changes become transactions in an order that the kernel accepts.
