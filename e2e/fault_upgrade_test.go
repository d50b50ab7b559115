package e2e

func upgradeFaults() []fault { return nil }
