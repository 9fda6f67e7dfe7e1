//! What our tables should contain. Pure; this is where the nftables design lives.
