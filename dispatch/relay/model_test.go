package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

// A modelStep is one event of a run: a kind, a number that the kind interprets, and the pause after it.
type modelStep struct {
	kind  string
	n     int
	pause time.Duration
}

var modelKinds = []string{
	"insert", "insert", "insert", "late", "rollback", "bad", "poison", "twin", "reset", "lock", "unlock",
	"source breaks", "source down", "source loses replies", "source up", "server down", "server busy",
	"server panics", "server loses replies", "server slow", "server up", "kill", "kill", "stop", "start",
	"start", "freeze", "clock", "retry", "drop",
}

func drawModelSteps(t *rapid.T) []modelStep {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) modelStep {
		return modelStep{
			kind: rapid.SampledFrom(modelKinds).Draw(t, "kind"), n: rapid.IntRange(1, 40).Draw(t, "n"),
			pause: time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond,
		}
	}), 5, 60).Draw(t, "steps")
}

// TestNothingIsLostOrAcceptedTwice is a run of random events on a table, a dispatcher and up to three relay
// processes that are killed between any two calls. It checks the invariants N1 and N2: each committed row is
// accepted exactly once or refused for a reason, and no other row is.
func TestNothingIsLostOrAcceptedTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := drawModelSteps(rt)
		var failures []string
		synctest.Test(t, func(*testing.T) { failures = newModel().run(steps) })
		if len(failures) > 0 {
			rt.Fatal(strings.Join(failures, "\n"))
		}
	})
}

// A model is the world of a run.
type model struct {
	tb        *table
	srv       *server
	rows      int
	processes []*modelProcess

	mu       sync.Mutex
	failures []string
	// committed are the ids of rows that are or will be committed.
	committed map[string]bool
	// source and server are how those fail now.
	source, server string
	// healthy is set at the end of the run.
	healthy bool
}

// state returns how source and server fail now.
func (m *model) state() (source, server string, healthy bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.source, m.server, m.healthy
}

// commits reports whether a row is or will be committed.
func (m *model) commits(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.committed[id]
}

// set changes what relays read.
func (m *model) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// A modelProcess is a relay that can be killed: then its calls have no effect and return nothing.
type modelProcess struct {
	end  func()
	dead atomic.Bool
	// left counts calls until the kill; negative: no kill is due.
	left atomic.Int64
	// frozen is until when its calls do not begin.
	frozen atomic.Int64
}

func newModel() *model {
	m := &model{tb: newTable(), srv: newServer(), committed: make(map[string]bool)}
	m.tb.call, m.srv.call, m.srv.judge = m.callSource, m.callServer, m.judge
	m.tb.removed = m.removed
	return m
}

func (m *model) fail(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.failures) < 10 {
		m.failures = append(m.failures, fmt.Sprintf(format, args...))
	}
}

// removed checks that a row leaves only after its acceptance, or for a reason.
func (m *model) removed(key source.Key, refused bool) {
	switch {
	case !m.commits(key.ID):
		m.fail("%s left and was not committed", key.ID)
	case refused && !strings.HasPrefix(key.ID, "bad") && !strings.HasPrefix(key.ID, "twin"):
		m.fail("%s is refused", key.ID)
	case !refused && !m.srv.has(key.ID):
		m.fail("%s is removed and was not accepted", key.ID)
	}
}

func (m *model) judge(row *client.RelayRow) *client.RelayResult {
	switch {
	case !m.commits(row.ID):
		m.fail("%s is handed over and was not committed", row.ID)
	case strings.HasPrefix(row.ID, "bad"):
		return result(http.StatusUnprocessableEntity, "invalid")
	}
	return nil
}

func (m *model) callSource(op string, after bool) error {
	source, _, _ := m.state()
	switch {
	case source == "source down" && !after, source == "source loses replies" && after:
		return errBroken
	case !after && op != "connect":
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (m *model) callServer(b *client.RelayBatch, after bool) error {
	if !after {
		time.Sleep(2 * time.Millisecond)
	}
	_, server, healthy := m.state()
	switch {
	case server == "server down" && !after, server == "server loses replies" && after:
		return &client.NoAnswerError{Err: errors.New("connection reset")}
	case server == "server busy" && !after:
		return problem(http.StatusServiceUnavailable, "unavailable", "not now")
	case server == "server panics" && !after && len(b.Rows) > 0,
		!healthy && !after && hasRow(b, "poison"):
		return problem(http.StatusInternalServerError, "internal", "internal error")
	case server == "server slow" && !after:
		time.Sleep(4 * time.Second)
	}
	return nil
}

// run takes the steps, heals everything, and returns what is wrong in the end.
func (m *model) run(steps []modelStep) []string {
	m.start()
	for _, s := range steps {
		m.step(s)
		m.pass(s.pause)
	}
	m.set(func() { m.healthy, m.source, m.server = true, "", "" })
	m.tb.locked = func(source.Key) bool { return false }
	m.start()
	m.pass(8 * time.Minute)
	for _, p := range m.processes {
		p.end()
	}
	synctest.Wait()
	if n := m.tb.count(); n > 0 {
		m.fail("%d rows wait", n)
	}
	for id := range m.committed {
		bad := strings.HasPrefix(id, "bad")
		if m.srv.has(id) == bad {
			m.fail("%s: accepted %t", id, !bad)
		}
	}
	return m.failures
}

// pass lets a time pass after a step.
func (m *model) pass(d time.Duration) {
	m.tb.fence.pass()
	m.srv.fence.pass()
	time.Sleep(d)
	synctest.Wait()
}

func (m *model) step(s modelStep) {
	switch s.kind {
	case "insert", "bad", "poison":
		for range 1 + s.n%5 {
			m.insert(s.kind, 0)
		}
	case "late":
		m.insert(s.kind, time.Duration(s.n)*2*time.Second)
	case "rollback":
		m.rows++
		m.tb.insert(fmt.Sprint("rollback-", m.rows), 1000*time.Hour)
	case "twin": // a row with the key of an earlier one
		id := fmt.Sprint("twin-", s.n%4)
		m.set(func() { m.committed[id] = true })
		m.tb.insert(id, 0)
	case "reset":
		m.reset()
	case "lock":
		m.tb.locked = func(key source.Key) bool { return key.Seq%int64(s.n) == 0 }
	case "unlock":
		m.tb.locked = func(source.Key) bool { return false }
	case "source breaks":
		m.tb.mu.Lock()
		m.tb.epoch++
		m.tb.mu.Unlock()
	case "source down", "source loses replies":
		m.set(func() { m.source = s.kind })
	case "source up":
		m.set(func() { m.source = "" })
	case "server down", "server busy", "server panics", "server loses replies", "server slow":
		m.set(func() { m.server = s.kind })
	case "server up":
		m.set(func() { m.server = "" })
	case "clock":
		m.tb.mu.Lock()
		m.tb.skew = time.Duration(s.n-20) * time.Hour
		m.tb.mu.Unlock()
	case "retry", "drop":
		if s.kind == "retry" || s.n%2 == 0 {
			m.ask(s.kind)
		}
	default:
		m.control(s)
	}
}

// control starts, stops and kills processes.
func (m *model) control(s modelStep) {
	if s.kind == "start" {
		if len(m.processes) < 3 {
			m.start()
		}
		return
	}
	if len(m.processes) == 0 {
		return
	}
	i := s.n % len(m.processes)
	p := m.processes[i]
	switch s.kind {
	case "freeze":
		p.frozen.Store(time.Now().Add(15 * time.Second).UnixNano())
	case "kill":
		p.left.Store(int64(s.n % 8))
		m.pass(3 * time.Second)
		p.dead.Store(true)
		fallthrough
	case "stop":
		p.end()
		m.processes = append(m.processes[:i], m.processes[i+1:]...)
	}
}

// insert inserts a row that is committed after a while.
func (m *model) insert(kind string, open time.Duration) {
	m.rows++
	id := fmt.Sprint(kind, "-", m.rows)
	m.set(func() { m.committed[id] = true })
	m.tb.insert(id, open)
}

// reset sets the numbers back, as a restart of MySQL 5.7 does: to the highest of the table.
func (m *model) reset() {
	m.tb.mu.Lock()
	defer m.tb.mu.Unlock()
	m.tb.last = 0
	for key := range m.tb.rows {
		m.tb.last = max(m.tb.last, key.Seq)
	}
	m.tb.epoch++
}

// ask stores an act, if none is open.
func (m *model) ask(action string) {
	m.srv.mu.Lock()
	defer m.srv.mu.Unlock()
	if a := m.srv.act; a == nil || a.State == "done" || a.State == "failed" {
		m.srv.act = &client.RelayAct{ID: fmt.Sprint(time.Now().UnixNano()), Action: action,
			RelayActProgress: client.RelayActProgress{State: "waiting"}}
	}
}

// start starts a process.
func (m *model) start() {
	p := &modelProcess{}
	p.left.Store(-1)
	c := SourceConfig{Name: "pay", Origin: "o", Poll: 100 * time.Millisecond, Batch: 7, Tail: true}
	r, err := New(Options{
		Sources: []SourceConfig{c},
		Sink:    func(string) Sink { return &modelSink{m.srv, p} },
		Connect: func(ctx context.Context, c SourceConfig) (Conn, error) {
			if p.killed() {
				return nil, errKilled
			}
			conn, err := m.tb.connect(ctx, c)
			if err != nil {
				return nil, err
			}
			return &modelConn{conn, p}, nil
		},
	})
	if err != nil {
		m.fail("%v", err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx) // always nil
	}()
	p.end = func() {
		cancel()
		<-ended
	}
	m.processes = append(m.processes, p)
}

var errKilled = errors.New("killed")

// killed reports whether a process is dead. It counts calls until its kill.
func (p *modelProcess) killed() bool {
	time.Sleep(time.Until(time.Unix(0, p.frozen.Load())))
	if left := p.left.Load(); left > 0 {
		p.left.Add(-1)
	} else if left == 0 {
		p.dead.Store(true)
	}
	return p.dead.Load()
}

// A modelSink is the connection of a process to the server.
type modelSink struct {
	*server
	p *modelProcess
}

func (s *modelSink) Submit(ctx context.Context, source string, b client.RelayBatch) (
	client.RelayReply, error) {
	if s.p.killed() {
		return client.RelayReply{}, errKilled
	}
	reply, err := s.server.Submit(ctx, source, b)
	if s.p.killed() {
		return client.RelayReply{}, errKilled
	}
	return reply, err
}

// A modelConn is the connection of a process to the table.
type modelConn struct {
	Conn
	p *modelProcess
}

func (c *modelConn) Read(ctx context.Context, after int64, limit int, patient bool) ([]source.Row, bool,
	error) {
	if c.p.killed() {
		return nil, false, errKilled
	}
	rows, more, err := c.Conn.Read(ctx, after, limit, patient)
	if c.p.killed() {
		return nil, false, errKilled
	}
	return rows, more, err
}

func (c *modelConn) Remove(ctx context.Context, keys []source.Key) (int, error) {
	if c.p.killed() {
		return 0, errKilled
	}
	n, err := c.Conn.Remove(ctx, keys)
	if c.p.killed() {
		return 0, errKilled
	}
	return n, err
}

func (c *modelConn) Refuse(ctx context.Context, rows []source.Refusal) (int, error) {
	if c.p.killed() {
		return 0, errKilled
	}
	n, err := c.Conn.Refuse(ctx, rows)
	if c.p.killed() {
		return 0, errKilled
	}
	return n, err
}

func (c *modelConn) RemoveRefused(ctx context.Context, keys []source.Key) (int, error) {
	if c.p.killed() {
		return 0, errKilled
	}
	return c.Conn.RemoveRefused(ctx, keys)
}

func (c *modelConn) DropRefused(ctx context.Context, f source.Filter, limit int) (int, error) {
	if c.p.killed() {
		return 0, errKilled
	}
	return c.Conn.DropRefused(ctx, f, limit)
}
