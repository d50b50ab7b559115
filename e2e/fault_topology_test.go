package e2e

func topologyFaults() []fault { return nil }
