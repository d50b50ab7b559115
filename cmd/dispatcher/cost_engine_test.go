//go:build !race

package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// In virtual time, each call to a part of the engine takes this long. So batches have the same sizes on every
// machine.
const (
	indexTakes    = 170 * time.Microsecond
	storeTakes    = 1300 * time.Microsecond
	receiverTakes = 5100 * time.Microsecond
)

// The counted calls of an engine to its index and its store.
const (
	claims = iota
	stamps
	commits
	settles
	acquires
	releases
	callKinds
)

var (
	callNames = [callKinds]string{
		"claims", "stamps", "commits of results", "settles", "acquires of locks", "releases of locks",
	}
	callTolerances = [callKinds]float64{ofGathering, ofGathering, ofOperations, ofOperations, ofOperations,
		ofOperations}
)

// calls counts the calls.
type calls struct {
	of [callKinds]atomic.Int64
	// settled counts callbacks.
	settled atomic.Int64
}

// call counts one call and lets virtual time pass.
func (c *calls) call(kind int, takes time.Duration) {
	c.of[kind].Add(1)
	time.Sleep(takes) // virtual
}

func (c *calls) counts() (now [callKinds]float64) {
	for kind := range now {
		now[kind] = float64(c.of[kind].Load())
	}
	return now
}

// start runs an engine on the embedded stores. A fake transport responds to its requests. The engine ends
// with the test.
func (c *calls) start(t *testing.T) *dispatch.Engine {
	t.Helper()
	s := apptest.Settings(t)
	log := app.NewLogger(&program.Terminal().Console, s)
	db, index := part(t, s, (*app.App).OpenDatabase), part(t, s, (*app.App).OpenIndex)
	keyring, err := secret.NewKeyring([]string{cmdtest.SomeKey('m')})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := outbound.New(outbound.Options{Transport: fakeTransport{}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := dispatch.New(dispatch.Options{
		Store: countedStore{db, c}, Schedule: countedIndex{index, c}, Sender: sender, Keyring: keyring,
		Embedded: true, LaneConcurrency: costLane, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	testserver.Until(t, "the index is filled", func() bool {
		return len(engine.Health(t.Context()).Degraded) == 0
	})
	return engine
}

type countedIndex struct {
	dispatch.Schedule
	*calls
}

func (c countedIndex) Claim(
	ctx context.Context, shard int, r schedule.ClaimRequest,
) (schedule.Claimed, error) {
	c.call(claims, indexTakes)
	return c.Schedule.Claim(ctx, shard, r)
}

func (c countedIndex) Settle(ctx context.Context, s []schedule.Settlement) ([]schedule.Settled, error) {
	c.call(settles, indexTakes)
	defer c.settled.Add(int64(len(s)))
	return c.Schedule.Settle(ctx, s)
}

func (c countedIndex) Acquire(ctx context.Context, r []schedule.Lease) ([]schedule.LockReply, error) {
	c.call(acquires, indexTakes)
	return c.Schedule.Acquire(ctx, r)
}

func (c countedIndex) Release(ctx context.Context, u []schedule.Unlock) ([]schedule.Waiter, error) {
	c.call(releases, indexTakes)
	return c.Schedule.Release(ctx, u)
}

type countedStore struct {
	dispatch.Store
	*calls
}

func (c countedStore) Stamp(ctx context.Context, s store.Stamp) ([]*store.Stamped, []store.Refusal, error) {
	c.call(stamps, storeTakes)
	return c.Store.Stamp(ctx, s)
}

func (c countedStore) Commit(ctx context.Context, r []store.Result, now int64) ([]store.Committed, error) {
	c.call(commits, storeTakes)
	return c.Store.Commit(ctx, r, now)
}

// fakeTransport responds without a network.
type fakeTransport struct{}

func (fakeTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return nil, err
	}
	time.Sleep(receiverTakes) // virtual
	return &http.Response{
		StatusCode: 200, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("success")),
		ContentLength: 7,
	}, nil
}
