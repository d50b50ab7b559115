package dispatch_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
)

// This file runs a plan: it starts and restarts processes, plays the clients, and triggers the events.

// A simulation is one run of a plan in a synctest bubble.
type simulation struct {
	plan     *plan
	path     string // of the database
	began    time.Time
	db       *sqlstore.DB
	keys     *secret.Keyring
	receiver *simReceiver
	log      *slog.Logger
	random   *rand.Rand // for choices that are not in the plan; guarded by mu
	skew     atomic.Int64
	delayed  sync.WaitGroup
	// pending counts delayed calls that are not made yet.
	pending atomic.Int32

	mu           sync.Mutex
	faults       []fault // of calls; each is removed when it is injected
	ending       bool
	index        *simIndex
	slots        []*process // the running process of each slot; nil: none
	starts       []*process
	met          map[string]int
	notes        []string
	outages      []outage
	disturbances []disturbance
	pauses       []disturbance
	rollbacks    []time.Time
	stamps       map[stampKey]stampSeen
	results      map[stampKey]time.Time
	accepted     map[int]string // id by callback of the plan
	acted        map[int][]done
	lastFault    time.Time
	problems     []string
}

// A done is an act that was carried out, with its result.
type done struct {
	act    act
	at     time.Time
	result store.CancelResult
	err    error
}

// note records a line for the story. The caller holds mu.
func (s *simulation) note(format string, args ...any) {
	s.lastFault = time.Now()
	s.notes = append(s.notes, fmt.Sprintf("%s ", time.Since(s.began))+fmt.Sprintf(format, args...))
}

// problem records an error that the judge does not check.
func (s *simulation) problem(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// check records an error of the simulation itself.
func (s *simulation) check(what string, err error) {
	if err != nil {
		s.problem("%s: %v", what, err)
	}
}

// now is the index's clock.
func (s *simulation) now() time.Time { return time.Now().Add(time.Duration(s.skew.Load())) }

// shared returns the present index.
func (s *simulation) shared() *simIndex {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index
}

// newSimulation opens an empty database.
func newSimulation(ctx context.Context, p *plan, path string, log *slog.Logger) (*simulation, error) {
	db, err := openDatabase(ctx, path)
	if err != nil {
		return nil, err
	}
	keys, err := secret.NewKeyring([]string{base64.StdEncoding.EncodeToString(make([]byte,
		secret.MasterKeyBytes))})
	if err != nil {
		return nil, err
	}
	s := &simulation{
		plan: p, path: path, began: time.Now(), lastFault: time.Now(), db: db, keys: keys, log: log,
		receiver: &simReceiver{scripts: map[string][]step{}, asked: map[string]int{}},
		random:   rand.New(rand.NewPCG(p.seed, 1)),
		faults:   slices.Clone(p.faults),
		slots:    make([]*process, p.processes),
		met:      map[string]int{},
		stamps:   map[stampKey]stampSeen{},
		results:  map[stampKey]time.Time{},
		accepted: map[int]string{},
		acted:    map[int][]done{},
	}
	for i := range p.callbacks {
		s.receiver.scripts[string(bodyOf(&p.callbacks[i]))] = p.callbacks[i].script
	}
	return s, nil
}

func bodyOf(c *planned) []byte { return []byte(`{"ref": "` + c.ref + `"}`) }

// start starts a process in a slot. Its goroutines end with it, or after its crash.
func (s *simulation) start(ctx context.Context, slot int) (*process, error) {
	p := &process{sim: s, slot: slot, died: make(chan struct{}), ended: make(chan struct{}),
		started: time.Now(), registry: prometheus.NewRegistry()}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	s.mu.Lock()
	starts := len(s.starts)
	if s.plan.embedded || s.index == nil {
		index := &simIndex{ix: memq.New(memq.Options{Now: s.now}), leases: map[string]schedule.Lease{}}
		s.index = index
		s.delayed.Go(func() { index.run(ctx) })
	}
	p.view = s.index.view(p)
	s.mu.Unlock()
	client, err := outbound.New(outbound.Options{Transport: network{p}, Version: "simulated"})
	if err != nil {
		return nil, err
	}
	p.engine, err = dispatch.New(dispatch.Options{
		Store: &calledStore{s.db, processSQL{p}}, Schedule: p.view, Sender: &simSender{client, p},
		Keyring:  s.keys,
		Embedded: s.plan.embedded, DrainTimeout: s.plan.drainTimeout, Workers: s.plan.workers,
		Horizon: s.plan.horizons[slot], Registerer: p.registry,
		Logger: s.log.With("process", slot, "start", starts),
	})
	if err != nil {
		return nil, err
	}
	p.counters, err = countersOf(p.registry)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		stop()
		return nil, nil
	}
	s.slots[slot] = p
	s.starts = append(s.starts, p)
	s.mu.Unlock()
	p.open.Store(true)
	go func() {
		defer close(p.ended)
		if err := p.engine.Run(run); err != nil {
			s.log.Info("a process could not start", "error", err)
		}
		p.open.Store(false)
	}()
	return p, nil
}

// supervise keeps a slot running until the simulation ends: it restarts a process that has ended, for
// whatever reason.
func (s *simulation) supervise(ctx context.Context, slot int) {
	for {
		p, err := s.start(ctx, slot)
		s.check("start", err)
		if p == nil {
			return
		}
		select {
		case <-p.died:
		case <-p.ended:
		}
		s.mu.Lock()
		wait := upTo(s.random, 100*time.Millisecond, 6*time.Second)
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// trigger executes an event.
func (s *simulation) trigger(ctx context.Context, e fault) {
	var p *process
	s.mu.Lock()
	if e.process >= 0 {
		p = s.slots[e.process]
	}
	if e.kind != snapshot {
		s.note("process %d: %s %s %s", e.process, e.kind, e.lasts, e.jump)
	}
	s.mu.Unlock()
	hit := true
	var err error
	switch e.kind {
	case crash, pause, drain:
		hit = p != nil && p.open.Load()
		if hit {
			s.apply(p, e)
		}
	case wipe:
		err = s.shared().wipe(ctx)
	case snapshot:
		err = s.shared().save(ctx)
	case rollback:
		hit, err = s.shared().restore(ctx)
		s.mu.Lock()
		s.rollbacks = append(s.rollbacks, time.Now())
		s.mu.Unlock()
	case clockJumps:
		s.skew.Add(int64(e.jump))
	default:
		s.mu.Lock()
		s.outages = append(s.outages, outage{e, time.Now().Add(e.lasts)})
		s.mu.Unlock()
		s.disturb(p, e.lasts)
	}
	s.check(string(e.kind), err)
	if hit {
		s.mu.Lock()
		s.met[string(e.kind)]++
		s.mu.Unlock()
	}
}

// apply executes an event of a running process.
func (s *simulation) apply(p *process, e fault) {
	switch e.kind {
	case crash:
		p.crash()
	case pause, stopBefore:
		p.pause(e.lasts)
	case drain:
		s.disturb(p, s.plan.drainTimeout+time.Second)
		p.open.Store(false)
		p.stop()
	}
}

// run executes the plan and stops everything.
func (s *simulation) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var supervisors, players sync.WaitGroup
	play := func(at time.Duration, do func()) {
		players.Go(func() {
			if sleepUntil(ctx, s.began.Add(at)) {
				do()
			}
		})
	}
	for slot := range s.plan.processes {
		supervisors.Go(func() { s.supervise(ctx, slot) })
	}
	for i := 0; i < len(s.plan.callbacks); {
		places := []int{i}
		for i++; i < len(s.plan.callbacks) && s.plan.callbacks[i].withPrevious; i++ {
			places = append(places, i)
		}
		play(s.plan.callbacks[places[0]].at, func() { s.submit(ctx, places) })
	}
	for _, a := range s.plan.acts {
		play(a.at, func() { s.perform(ctx, a) })
	}
	for _, e := range s.plan.events {
		play(e.at, func() { s.trigger(ctx, e) })
	}
	sleepUntil(ctx, s.began.Add(s.plan.quiet))
	s.mu.Lock()
	s.faults = nil
	s.mu.Unlock()
	err := s.settleDown(ctx)
	synctest.Wait()
	s.atRest()
	s.mu.Lock()
	s.ending = true
	starts := slices.Clone(s.starts)
	s.mu.Unlock()
	for _, p := range starts {
		p.stop()
	}
	for _, p := range starts {
		<-p.ended
	}
	cancel()
	players.Wait()
	supervisors.Wait()
	s.delayed.Wait()
	synctest.Wait()
	return errors.Join(err, s.db.Close())
}

// atRest checks that the gauges of every undisturbed process are zero when nothing is left to do.
func (s *simulation) atRest() {
	s.mu.Lock()
	calm := time.Now().Add(-15 * time.Second)
	resting := slices.DeleteFunc(slices.Clone(s.slots), func(p *process) bool {
		return p == nil || !p.open.Load() || p.started.After(calm) || s.disturbed(p, calm, time.Now())
	})
	s.mu.Unlock()
	for _, p := range resting {
		families, err := p.registry.Gather()
		s.check("metrics", err)
		for _, f := range families {
			switch name := strings.TrimPrefix(f.GetName(), "dispatcher_"); name {
			case "slots_in_use", "attempts_in_flight", "results_waiting", "enqueues_waiting", "sql_down",
				"index_down":
				if v := f.GetMetric()[0].GetGauge().GetValue(); v != 0 {
					s.problem("process %d, at rest: %s is %g", p.slot, name, v)
				}
			}
		}
	}
}

// settleDown waits until every callback is terminal and the index is empty, or the plan's limit is reached.
func (s *simulation) settleDown(ctx context.Context) error {
	deadline := s.began.Add(s.plan.limit())
	quiet := s.began.Add(s.plan.quiet)
	for _, a := range s.plan.acts {
		if at := s.began.Add(a.at + callTime); at.After(quiet) {
			quiet = at
		}
	}
	for time.Now().Before(deadline) {
		look := time.Second
		if time.Since(quiet) > 2*time.Minute {
			look = 10 * time.Second // the index's clock was set back by longJump
		}
		time.Sleep(look)
		s.mu.Lock()
		all := len(s.accepted) == len(s.plan.callbacks)
		for _, d := range s.pauses {
			// A process that was stopped continues its last action, which must have ended.
			all = all && d.to.Before(time.Now().Add(-5*time.Second))
		}
		s.mu.Unlock()
		if !all || time.Now().Before(quiet) || s.pending.Load() > 0 {
			continue
		}
		open, err := s.db.Open(ctx, store.Cursor{}, 1)
		if err != nil {
			return fmt.Errorf("read open rows: %w", err)
		}
		if len(open) > 0 {
			continue
		}
		held, _, err := s.shared().contents(ctx)
		if err != nil {
			return fmt.Errorf("read the index: %w", err)
		}
		if len(held) == 0 {
			return nil
		}
	}
	return nil
}

// limit is the latest end of the plan, however its faults fall. It is generous, because lateness is checked
// separately.
func (p *plan) limit() time.Duration {
	slowest, sum := time.Duration(0), time.Duration(0)
	for i := range p.callbacks {
		c := &p.callbacks[i]
		ladder := c.at + c.delay
		for _, t := range c.tiers {
			ladder += time.Duration(float64(t)*(1+c.jitter)) + 3*time.Second
		}
		slowest = max(slowest, ladder)
		sum += time.Duration(len(c.tiers)+2) * c.timeout
	}
	return max(p.quiet, 45*time.Second) + 4*time.Minute + 2*(slowest+p.skew()) + sum
}

// skew is the most that the index's clock is ahead of the bubble's.
func (p *plan) skew() (most time.Duration) {
	for _, e := range p.events {
		most += e.jump.Abs()
	}
	return most
}
