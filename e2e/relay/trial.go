package relay

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

const (
	// pollEvery is the poll interval of the sources, and page the rows that they read at once.
	pollEvery = 50 * time.Millisecond
	page      = 100
	// leaseTime is how long a source stays with a relay that died.
	leaseTime = 10 * time.Second
	// resumed is the longest time until the next relay reads the source of a dead one, on an idle machine.
	// resumedBusy is that on a machine with other trials, with the end of the last callback.
	resumed     = 15 * time.Second
	resumedBusy = 40 * time.Second
	// settleTime is the limit for the rest of a trial.
	settleTime = 2 * time.Minute
)

// A mode is where the relay runs.
type mode string

// The modes: in a process of its own that uses the HTTP API, or in the dispatcher.
const (
	overHTTP  mode = "HTTP"
	inProcess mode = "in process"
)

// A trial is a run of the relay under a fault.
type trial struct {
	*harness.Trial
	mode    mode
	on      *database
	src     *outbox // the source of most trials
	sources []*outbox
	listen  string // of the API, the same after each restart
	relays  []*harness.Process
	// bodies are those of orders whose body is not harness.Payload of their id.
	bodies  map[string][]byte
	result  line
	allowed judge.Bounds
}

// trialsAtOnce bounds the trials that run at the same time. They mostly wait.
const trialsAtOnce = 8

var places = semaphore.NewWeighted(trialsAtOnce)

// newTrial creates a trial without a backend and without a source.
func newTrial(t *testing.T, title string, on *database, m mode) *trial {
	tr := &trial{Trial: harness.NewTrial(t, title), mode: m, on: on, bodies: map[string][]byte{}}
	tr.Times = harness.QuickTimes
	tr.listen = "127.0.0.1:" + testserver.FreePort(t)
	return tr
}

// ownPostgres starts a PostgreSQL for the dispatcher of this trial.
func (tr *trial) ownPostgres() *testserver.Postgres {
	tr.Helper()
	pg := testserver.NewPostgres(tr, "-c", "fsync=off")
	tr.UseBackend(harness.Backend{Name: "postgres+embedded", DataDir: tr.TempDir(), Prefix: "e2e",
		Postgres: pg.Database(tr)})
	return pg
}

// server starts the dispatcher. In process it also relays.
func (tr *trial) server(failpoint string) *harness.Process {
	tr.Helper()
	return tr.serverAt(tr.listen, failpoint)
}

func (tr *trial) serverAt(listen, failpoint string) *harness.Process {
	tr.Helper()
	l := harness.Launch{Listen: listen, Failpoint: failpoint, MayDie: failpoint != ""}
	if tr.mode == inProcess {
		l.Env = tr.env()
	}
	p := tr.Launch(l)
	if tr.mode == inProcess {
		tr.relays = append(tr.relays, p)
	}
	return p
}

// relay starts a process that reads the sources. Over HTTP it also starts the dispatcher, unless it runs.
func (tr *trial) relay(failpoint string) *harness.Process {
	tr.Helper()
	if tr.mode == inProcess {
		if len(tr.Alive()) == 0 {
			return tr.server(failpoint)
		}
		return tr.serverAt("", failpoint)
	}
	if len(tr.Alive()) == 0 {
		tr.server("")
	}
	return tr.relayTo("http://"+tr.listen, failpoint)
}

// relayTo starts a relay that uses the API at an address.
func (tr *trial) relayTo(base, failpoint string) *harness.Process {
	tr.Helper()
	p := tr.Relay(base, harness.Launch{Failpoint: failpoint, MayDie: failpoint != "", Env: tr.env()})
	tr.relays = append(tr.relays, p)
	return p
}

// env has the settings of the sources.
func (tr *trial) env() []string {
	all := []harness.Submission{}
	for _, o := range tr.sources {
		s := harness.Submission{"name": o.name, "dsn": o.dsn}
		for name, value := range o.settings {
			s[name] = value
		}
		all = append(all, s)
	}
	text, err := json.Marshal(all)
	tr.Check(err)
	return []string{"DISPATCHER_RELAY=" + string(text)}
}

// kill kills a relay. In process its open claims may cost duplicates.
func (tr *trial) kill(p *harness.Process) {
	tr.Helper()
	if tr.mode == inProcess {
		tr.Kill(p, 0)
		return
	}
	p.Kill()
	tr.MarkFault()
}

// awaitDeath waits until a relay has killed itself at its failpoint.
func (tr *trial) awaitDeath(p *harness.Process) {
	tr.Helper()
	if tr.mode == inProcess {
		tr.AwaitDeath(p, time.Minute, 0)
		return
	}
	tr.AwaitFailpoint(p, time.Minute)
	tr.MarkFault()
}

// awaitStop waits until a process has stopped itself at its failpoint.
func (tr *trial) awaitStop(p *harness.Process) {
	tr.Helper()
	tr.Eventually(time.Minute, "the relay stops itself", func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
		if err == nil && !strings.Contains(string(text), ") T ") {
			err = fmt.Errorf("it runs: %.60s", text)
		}
		return err
	})
}

// heldBy returns an error unless the process holds the lease of the source.
func (o *outbox) heldBy(p *harness.Process) error {
	n, err := p.Metric("dispatcher_relay_leader", `source="`+o.name+`"`)
	if err == nil && n != 1 {
		err = fmt.Errorf("dispatcher_relay_leader is %v", n)
	}
	return err
}

// held waits until the process holds the lease of the source.
func (o *outbox) held(p *harness.Process, limit time.Duration) {
	o.tr.Helper()
	o.tr.Eventually(limit, "the relay holds "+o.name, func() error { return o.heldBy(p) })
}

// status reads what the API says about the source.
func (o *outbox) status() (s client.RelaySource, err error) {
	_, err = o.tr.AnyProcess().Call(o.tr.Context(), http.MethodGet, "/v1/relay/"+o.name, nil, &s)
	return s, err
}

// act asks for an act on the source's rows, and waits until it is done.
func (o *outbox) act(action string, body harness.Submission) client.RelayAct {
	o.tr.Helper()
	o.tr.AnyProcess().Post("/v1/relay/"+o.name+"/"+action, body, nil)
	var act client.RelayAct
	o.tr.Eventually(time.Minute, action+" is done", func() error {
		s, err := o.status()
		if err != nil {
			return err
		}
		if s.Act == nil || s.Act.Action != action || s.Act.State != "done" {
			return fmt.Errorf("the act is %+v", s.Act)
		}
		act = *s.Act
		return nil
	})
	return act
}

// errs waits until the source's error contains a text.
func (o *outbox) errs(limit time.Duration, text string) {
	o.tr.Helper()
	o.tr.Eventually(limit, "the source reports an error", func() error {
		s, err := o.status()
		if err == nil && !strings.Contains(s.Error, text) {
			err = fmt.Errorf("its error is %q, want one with %q", s.Error, text)
		}
		return err
	})
}

// conclude waits until all outboxes are empty and all callbacks terminal, and judges the trial.
func (tr *trial) conclude(limit time.Duration) judge.Verdict {
	tr.Helper()
	for _, o := range tr.sources {
		o.drained(limit)
	}
	tr.Settle(settleTime)
	return tr.judged()
}

// judged compares the orders with the callbacks: each order has exactly one. Its receiver got it once, except
// for sends that a killed dispatcher had in flight.
func (tr *trial) judged() judge.Verdict {
	tr.Helper()
	ids, taken := tr.callbacks(), map[string]bool{}
	for _, o := range tr.sources {
		for _, order := range o.orders() {
			taken[order] = true
			id := "cb_none_of_" + order // the judge counts an unknown id as lost
			if have := ids[order]; len(have) > 0 {
				id = have[0]
				tr.result.twice += len(have) - 1
			}
			body := tr.bodies[order]
			if body == nil {
				body = harness.Payload(order)
			}
			tr.Note(id, harness.Submission{"ref": order, "payload": json.RawMessage(body)})
		}
	}
	violation := harness.Violations(tr)
	for ref, have := range ids {
		if !taken[ref] {
			violation("%s has the callback %s, but its transaction did not commit", ref, have[0])
		}
	}
	tr.onceByTheAPI(taken)
	v := tr.Accounted(tr.allowed)
	for _, p := range tr.relays {
		if !p.Ended() {
			tr.result.replayed += p.Count("dispatcher_relay_rows_total", `result="replayed"`)
		}
	}
	return v
}

// callbacks returns the ids of the callbacks by their reference.
func (tr *trial) callbacks() map[string][]string {
	tr.Helper()
	type callback struct{ id, ref string }
	ids := map[string][]string{}
	for _, c := range harness.Rows(tr.Trial, func(c *callback) []any { return []any{&c.id, &c.ref} },
		`SELECT id, ref FROM requests`) {
		ids[c.ref] = append(ids[c.ref], "cb_"+c.id)
	}
	return ids
}

// orders returns the orders that the application has committed.
func (o *outbox) orders() (all []string) {
	o.tr.Helper()
	o.tr.Check(judge.Each(o.tr.Context(), o.db, func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		all = append(all, id)
		return err
	}, `SELECT id FROM orders`))
	return all
}

// apiSample is the number of orders that onceByTheAPI looks up.
const apiSample = 20

// onceByTheAPI checks that the API lists some of the orders exactly once.
func (tr *trial) onceByTheAPI(orders map[string]bool) {
	tr.Helper()
	if len(tr.Alive()) == 0 {
		return
	}
	looked := 0
	for order := range orders {
		listed, err := tr.AnyProcess().ListAll(client.Filter{Ref: order})
		tr.Check(err)
		if len(listed) != 1 {
			tr.Errorf("the API lists %d callbacks of %s, want one", len(listed), order)
		}
		looked++
		if looked == apiSample {
			return
		}
	}
}
