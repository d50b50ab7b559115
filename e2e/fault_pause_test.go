package e2e

func pauseFaults() []fault { return nil }
