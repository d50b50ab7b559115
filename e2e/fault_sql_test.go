package e2e

func sqlFaults() []fault { return nil }
