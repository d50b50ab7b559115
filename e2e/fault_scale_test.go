package e2e

func scaleFaults() []fault { return nil }
