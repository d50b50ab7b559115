package faults

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// localFaults are troubles of the dispatcher's own machine, which no receiver is to blame for: no tier is
// charged for them.
func localFaults() []fault {
	return []fault{
		{id: "F18", title: "no file descriptors left", on: onlySQLite, run: noDescriptors},
		{id: "F45", title: "no name server answers", on: onlySQLite, run: noNames},
	}
}

// everywhere opens one more address of the recorder that any host of 127.0.0.0/8 and port leads to, and
// returns the port.
func (tr *trial) everywhere() string {
	tr.Helper()
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		tr.Fatal(err)
	}
	tr.Recorder.Serve(listener)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		tr.Fatal(err)
	}
	return port
}

// charges are what SQL says that callbacks with such a reference were charged and diverted.
type charges struct{ callbacks, charged, diverted, failed int }

// chargesOf counts over the callbacks whose ref begins with the prefix.
func (tr *trial) chargesOf(prefix string) (c charges) {
	tr.Helper()
	like := prefix + "%"
	row := tr.Database().QueryRowContext(tr.Context(), `SELECT count(*), coalesce(sum(attempt_count), 0),
		coalesce(sum(CASE WHEN divert_count > 0 THEN 1 ELSE 0 END), 0)
		FROM callbacks JOIN requests USING (project, id) WHERE ref LIKE $1`, like)
	if err := row.Scan(&c.callbacks, &c.charged, &c.diverted); err != nil {
		tr.Fatalf("count the charges of %s: %v", prefix, err)
	}
	c.failed = tr.sqlCount(`SELECT count(*) FROM attempts a
		JOIN requests r ON r.project = a.project AND r.id = a.callback_id
		WHERE r.ref LIKE $1 AND a.outcome <> 'succeeded'`, like)
	return c
}

// uncharged checks that trouble of our own cost these callbacks nothing: each was diverted at most, and
// charged for its one success.
func (tr *trial) uncharged(prefix string) {
	tr.Helper()
	c := tr.chargesOf(prefix)
	if c.callbacks == 0 || c.diverted == 0 {
		tr.Errorf("%d callbacks %s…, %d of them diverted: the fault hit none", c.callbacks, prefix, c.diverted)
	}
	if c.charged != c.callbacks || c.failed > 0 {
		tr.Errorf("%d callbacks %s… were charged %d attempts, want one for each; %d failed", c.callbacks, prefix,
			c.charged, c.failed)
	}
	tr.Remark("%d callbacks %s…: %d diverted, %d charged attempts, %d failed", c.callbacks, prefix, c.diverted,
		c.charged, c.failed)
}

// noDescriptors leaves the process no file descriptor more, with many receivers that hang and many that do
// not. Nothing can be connected to: what was to be sent is put off and not charged. Once there are
// descriptors again all goes on.
func noDescriptors(tr *trial) {
	const hosts, hanging = 200, 60
	port := tr.everywhere()
	tr.Recorder.SetScript(func(h *harness.Request) harness.Reply {
		if h.Kind() == "hang" {
			return harness.Reply{Status: 200, After: 5 * time.Second}
		}
		return harness.Usual(h)
	})
	// Each receiver is another host, so that no connection can be used again.
	to := func(kind string, net int) func(int) harness.Submission {
		return func(i int) harness.Submission {
			s := tr.Callback(kind, fmt.Sprintf("%s-%d", kind, i))
			s["url"] = fmt.Sprintf("http://127.0.%d.%d:%s/%s/%d", net, 1+i, port, kind, i)
			s["policy"] = harness.Submission{"tiers": []string{"1s", "1s", "1s", "1s"}, "timeout": "20s"}
			return s
		}
	}
	p := tr.Serve()
	tr.AcceptMany(hanging, to("hang", 1))
	harness.Eventually(tr, 30*time.Second, "receivers hang", func() error {
		if n := tr.Recorder.InFlight(); n < hanging {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	tr.connections(p, 8)
	tr.MarkFault()
	// Below what it has open: whatever it closes it cannot open again.
	if err := tr.limit(p, "nofile", "16:"); err != nil {
		tr.Fatal(err)
	}
	from := time.Now()
	w := tr.watch(p)
	tr.AcceptMany(hosts, to("during", 2))
	time.Sleep(5 * time.Second) // the fault lasts, by the clock
	c := tr.chargesOf("during")
	if c.charged > 0 {
		tr.Errorf("%d attempts were charged without a file descriptor", c.charged)
	}
	g := w.during(from, time.Now())
	if err := tr.limit(p, "nofile", "4096:"); err != nil {
		tr.Fatal(err)
	}
	tr.MarkFault()
	tr.acceptsAnew(p, 10*time.Second)
	tr.Remark("without descriptors: %s", g)
	if g.accepts[http.StatusAccepted] == 0 {
		tr.Errorf("no accept succeeded over a connection that was open: %s", g)
	}
	tr.moderate(w, time.Since(from))
	tr.Settle(2 * time.Minute)
	tr.Verdict(judge.Bounds{Heal: time.Minute})
	tr.uncharged("during")
}

// connections opens a few to the API and leaves them for the next requests.
func (tr *trial) connections(p *harness.Process, n int) {
	tr.Helper()
	var all errgroup.Group
	for range n {
		all.Go(func() error {
			_, err := p.List(tr.Context(), nil)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		tr.Fatal(err)
	}
}

// acceptsAnew waits until the process answers over a new connection.
func (tr *trial) acceptsAnew(p *harness.Process, limit time.Duration) {
	tr.Helper()
	began := time.Now()
	harness.Eventually(tr, limit, "the API answers over a new connection", func() error {
		fresh := harness.NewClient(p.Base)
		defer fresh.HTTP.CloseIdleConnections()
		fresh.HTTP.Timeout = time.Second
		_, err := fresh.List(tr.Context(), nil)
		return err
	})
	tr.Remark("a new connection is served %s after there are descriptors again",
		time.Since(began).Round(10*time.Millisecond))
}

// noNames silences the only name server that the process knows. Callbacks to names wait for it, uncharged;
// those to addresses notice nothing.
func noNames(tr *trial) {
	ns := startNameServer(tr)
	port := tr.everywhere()
	p := harness.Serve(tr.T, harness.Launch{On: tr.Backend, Args: append(tr.Args, "--workers", "128"),
		Under: ns.program()})
	tr.AddProcess(p)
	// The name server and the receiver live in a test that may be short of time itself: neither is to be late
	// by it.
	policy := harness.Submission{"tiers": []string{"1s", "1s"}, "timeout": "6s"}
	shape := func(i int) harness.Submission {
		s := tr.Callback("plain", fmt.Sprint("address-", i))
		s["policy"] = policy
		if i%2 == 0 {
			return s
		}
		s["ref"], s["idempotency_key"] = fmt.Sprint("name-", i), fmt.Sprint("key-name-", i)
		s["payload"] = harness.Payload(fmt.Sprint("name-", i))
		// Each is another host: an open connection needs no name.
		s["url"] = fmt.Sprintf("http://m%d.shop.test:%s/plain/%d", i, port, i)
		return s
	}
	began := time.Now()
	ld := tr.Load(40, shape)
	tr.awaitSends(40)
	w := tr.watch(p)
	if c := tr.chargesOf("name"); c.charged == 0 {
		tr.Error("no callback to a name was sent while the name server answered")
	}
	tr.MarkFault()
	ns.silent.Store(true)
	from := time.Now()
	time.Sleep(9 * time.Second) // the fault lasts, by the clock
	g := w.during(from, time.Now())
	silent := time.Since(from)
	ns.silent.Store(false)
	tr.MarkFault()
	if g.accepts[http.StatusAccepted] == 0 || len(g.accepts) > 1 {
		tr.Errorf("accepts suffered from a dead name server: %s", g)
	}
	tr.Remark("without names for %s: %s", silent.Round(time.Second), g)
	tr.awaitSends(sqlRate)
	tr.moderate(w, time.Since(began))
	ld.Finish()
	tr.Settle(2 * time.Minute)
	v := tr.Verdict(judge.Bounds{Heal: time.Minute})
	tr.uncharged("name")
	tr.unaffected(v)
}

// unaffected checks that callbacks to addresses were each sent once, on time.
func (tr *trial) unaffected(v judge.Verdict) {
	tr.Helper()
	c := tr.chargesOf("address")
	if c.callbacks == 0 || c.charged != c.callbacks || c.failed > 0 || c.diverted > 0 {
		tr.Errorf("callbacks to addresses are affected: %+v", c)
	}
	tr.Remark("%d callbacks to addresses, none affected; %d names asked", c.callbacks, v.Sends-c.callbacks)
}

// limit sets a limit of a running process, with "soft:" or "soft:hard" as prlimit writes it.
func (tr *trial) limit(p *harness.Process, what, value string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "prlimit", "--pid", fmt.Sprint(p.Cmd.Process.Pid),
		"--"+what+"="+value).CombinedOutput()
	if err != nil {
		return fmt.Errorf("prlimit --%s=%s: %w: %s", what, value, err, out)
	}
	return nil
}
