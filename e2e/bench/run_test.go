package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// TestMain lets the test binary run as one of the processes that measurements start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == processCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestSubmissionsCarryTheirNumber(t *testing.T) {
	due := time.Date(2026, 11, 21, 20, 0, 0, 7_000_000, time.UTC)
	s := submission{url: "http://127.0.0.1:1/", payload: newPayload(), members: seeding{100, 50}.members}
	text := s.appendBatch(nil, 41, 43, func(n int) time.Time {
		if n == 41 {
			return time.Time{}
		}
		return due
	})
	var batch struct {
		Callbacks []struct {
			URL     string
			Lane    string
			DueAt   *time.Time `json:"due_at"`
			Payload json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &batch); err != nil || len(batch.Callbacks) != 2 {
		t.Fatalf("%v in %s", err, text)
	}
	for i, cb := range batch.Callbacks {
		n, ok := numberOf(cb.Payload)
		whole := ok && n == 41+i && len(cb.Payload) == payloadSize
		if !whole || cb.URL != s.url || !strings.HasPrefix(cb.Lane, "merchant-") {
			t.Errorf("callback %d: number %d %t, %d bytes, %s, %s", i, n, ok, len(cb.Payload), cb.URL,
				cb.Lane)
		}
	}
	if batch.Callbacks[0].DueAt != nil || !batch.Callbacks[1].DueAt.Equal(due) {
		t.Errorf("due at %v and %v", batch.Callbacks[0].DueAt, batch.Callbacks[1].DueAt)
	}
	if n, ok := numberOf([]byte(strings.Repeat("x", payloadSize))); ok {
		t.Errorf("a strange body has number %d", n)
	}
}

// As many callbacks stay open as pending says, and some open and some ended ones fail.
func TestSeedingIsMixed(t *testing.T) {
	s := seeding{rows: 100_000, pending: 25_000}
	kinds := map[[2]int]int{} // by status and attempts
	open := 0
	for i := range s.rows {
		kinds[[2]int{s.status(i), s.attempts(i)}]++
		if s.open(i) {
			open++
		}
	}
	if open != s.pending {
		t.Errorf("%d stay open, want %d", open, s.pending)
	}
	for kind, want := range map[[2]int]int{
		{200, 0}: 25_000 * 30 / 31, {200, 1}: 75_000 * 30 / 31, {503, 1}: 25_000 / 31, {503, 3}: 75_000 / 31,
	} {
		if got := kinds[kind]; got < want-20 || got > want+20 {
			t.Errorf("%d callbacks get status %d and have %d attempts, want %d", got, kind[0], kind[1],
				want)
		}
	}
}

func TestOpenLoopKeepsToTheClock(t *testing.T) {
	const n, perSecond = 50, 1000
	start := time.Now()
	working := func() func(int) error { return func(int) error { return nil } }
	sent, err := openLoop(t.Context(), perSecond, n, working)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		planned := start.Add(time.Duration(i) * time.Second / perSecond)
		if sent.began[i].Before(planned) || sent.answered[i].Before(sent.began[i]) {
			t.Errorf("request %d, planned for %s, began %s and returned %s",
				i, planned, sent.began[i], sent.answered[i])
		}
	}
	broken := errors.New("broken")
	failing := func() func(int) error { return func(int) error { return broken } }
	if _, err := openLoop(context.Background(), perSecond, n, failing); !errors.Is(err, broken) {
		t.Errorf("a loop whose requests fail: %v", err)
	}
}

func TestEarlyArrivalsAreFound(t *testing.T) {
	due := time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC)
	arrived := []time.Time{due, due.Add(1500 * time.Microsecond), due.Add(-time.Nanosecond)}
	late, early := lateBy(arrived, dueAll(due))
	if early != 1 || late[0] != 0 || late[1] != 1.5 || late[2] >= 0 {
		t.Errorf("%d early, late by %v ms", early, late)
	}
}

// The floor needs no server, so this is a whole measurement.
func TestFloorIsMeasured(t *testing.T) {
	b := &bench{n: 500, concurrency: 8, receiver: startReceiver(t)}
	f, err := b.within(build{}, systems[0], phases[0].measure)
	if err != nil || f[rate] <= 0 || f[memory] <= 0 {
		t.Errorf("figures of the floor: %v, %v", f, err)
	}
	err = testserver.Outside(func(tb testing.TB) {
		arriving := b.receiver.expect(1)
		for range 2 {
			if err := newSender(b.receiver.url, 1).send(t.Context(), 0, newPayload()); err != nil {
				t.Fatal(err)
			}
		}
		arriving.await(tb, time.Minute)
		arriving.checkOnce(tb)
	})
	if err == nil || !strings.Contains(err.Error(), "1 callbacks arrived twice") {
		t.Errorf("a second arrival: %v", err)
	}
}
