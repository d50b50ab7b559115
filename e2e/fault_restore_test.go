package e2e

func restoreFaults() []fault { return nil }
