package e2e

func redisFaults() []fault { return nil }
