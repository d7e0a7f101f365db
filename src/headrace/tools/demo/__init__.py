"""The demo: a shop's database, its workload, and an oracle for its documents."""
