package e2e

func localFaults() []fault { return nil }
