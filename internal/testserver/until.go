package testserver

import (
	"testing"
	"time"
)

// Until polls a condition in real time, and fails the test if it does not hold within a minute.
func Until(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within a minute: %s", what)
		}
	}
}
