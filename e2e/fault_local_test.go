package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// localFaults are troubles of the dispatcher's own machine, which no receiver is to blame for: no tier is charged for them. And the
// one that the receiver alone knows of: it answers after we have given up.
func localFaults() []fault {
	return []fault{
		{id: "F18", title: "no file descriptors left", short: []combination{embedded}, full: bothEnds, run: noDescriptors},
		{id: "F45", title: "no name server answers", short: []combination{embedded}, full: bothEnds, run: func(l *lab) { noNames(l, (*nameServer).fallSilent) }},
		{id: "F45", title: "no name server listens", full: []combination{embedded}, run: func(l *lab) { noNames(l, (*nameServer).close) }},
		{id: "F51", title: "answer after the time-out", short: []combination{embedded}, full: bothEnds, run: answersLate},
	}
}

// everywhere opens one more address of the witness that any host of 127.0.0.0/8 and port leads to, and returns the port.
func (l *lab) everywhere() string {
	l.Helper()
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		l.Fatal(err)
	}
	l.w.serve(listener)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		l.Fatal(err)
	}
	return port
}

// charges are what SQL says that callbacks with such a reference were charged and diverted.
type charges struct {
	callbacks, charged, diverted, failed int
	classes                              map[string]int // of the failed ones
}

// chargesOf counts over the callbacks whose ref begins with the prefix.
func (l *lab) chargesOf(prefix string) (c charges) {
	l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := l.database().QueryRowContext(ctx, `SELECT count(*), coalesce(sum(attempt_count), 0), coalesce(sum(CASE WHEN divert_count > 0 THEN 1 ELSE 0 END), 0)
		FROM callbacks WHERE ref LIKE $1`, prefix+"%").Scan(&c.callbacks, &c.charged, &c.diverted)
	if err == nil {
		c.classes, err = failures(ctx, l.database(), prefix)
	}
	for _, n := range c.classes {
		c.failed += n
	}
	if err != nil {
		l.Fatalf("count the charges of %s: %v", prefix, err)
	}
	return c
}

// failures counts the attempts without success by class.
func failures(ctx context.Context, db *sql.DB, prefix string) (map[string]int, error) {
	found, err := db.QueryContext(ctx, `SELECT a.class, count(*) FROM attempts a JOIN callbacks c ON c.id = a.callback_id
		WHERE c.ref LIKE $1 AND a.outcome <> 'succeeded' GROUP BY a.class`, prefix+"%")
	if err != nil {
		return nil, err
	}
	defer found.Close()
	classes := map[string]int{}
	for found.Next() {
		var class string
		var n int
		if err := found.Scan(&class, &n); err != nil {
			return nil, err
		}
		classes[class] = n
	}
	return classes, found.Err()
}

// uncharged checks that trouble of our own cost these callbacks nothing: each was diverted at most, and charged for its one success.
func (l *lab) uncharged(prefix string) {
	l.Helper()
	c := l.chargesOf(prefix)
	if c.callbacks == 0 || c.diverted == 0 {
		l.Errorf("%d callbacks %s…, %d of them diverted: the fault hit none", c.callbacks, prefix, c.diverted)
	}
	if c.charged != c.callbacks || c.failed > 0 {
		l.Errorf("%d callbacks %s… were charged %d attempts, want one for each; failed: %v", c.callbacks, prefix, c.charged, c.classes)
	}
	l.remark("%d callbacks %s…: %d diverted, %d charged attempts, %d failed", c.callbacks, prefix, c.diverted, c.charged, c.failed)
}

// noDescriptors leaves the process no file descriptor more, with many receivers that hang and many that do not. Nothing can be
// connected to: what was to be sent is put off and not charged. Once there are descriptors again all goes on.
func noDescriptors(l *lab) {
	const hosts, hanging = 200, 60
	port := l.everywhere()
	l.w.behave(func(h *hit) reply {
		if h.kind() == "hang" {
			return reply{status: 200, after: 5 * time.Second}
		}
		return usual(h)
	})
	// Each receiver is another host, so that no connection can be used again.
	to := func(kind string, net int) func(int) submission {
		return func(i int) submission {
			s := l.callback(kind, fmt.Sprintf("%s-%d", kind, i))
			s["url"] = fmt.Sprintf("http://127.0.%d.%d:%s/%s/%d", net, 1+i, port, kind, i)
			s["policy"] = submission{"tiers": []string{"1s", "1s", "1s", "1s"}, "timeout": "20s"}
			return s
		}
	}
	p := l.serve()
	l.acceptMany(hanging, to("hang", 1))
	eventually(l, 30*time.Second, "receivers hang", func() error {
		if n := l.w.now(); n < hanging {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	l.connections(p, 8)
	l.struck()
	// Below what it has open: whatever it closes it cannot open again.
	if err := l.limit(p, "nofile", "16:"); err != nil {
		l.Fatal(err)
	}
	from := time.Now()
	w := l.watch(p)
	l.acceptMany(hosts, to("during", 2))
	time.Sleep(long(l, 30*time.Second, 5*time.Second)) // the fault lasts, by the clock
	c := l.chargesOf("during")
	if c.charged > 0 {
		l.Errorf("%d attempts were charged without a file descriptor", c.charged)
	}
	g := w.during(from, time.Now())
	if err := l.limit(p, "nofile", "4096:"); err != nil {
		l.Fatal(err)
	}
	l.struck()
	l.acceptsAnew(p, 10*time.Second)
	l.remark("without descriptors: %s", g)
	if g.accepts[http.StatusAccepted] == 0 {
		l.Errorf("no accept succeeded over a connection that was open: %s", g)
	}
	l.moderate(w, time.Since(from))
	l.settle(2 * time.Minute)
	l.verdict(judge.Bounds{Heal: time.Minute})
	l.uncharged("during")
}

// connections opens a few to the API, and leaves them for whoever asks next.
func (l *lab) connections(p *process, n int) {
	l.Helper()
	var all errgroup.Group
	for range n {
		all.Go(func() error {
			_, err := p.list(l.Context(), nil)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		l.Fatal(err)
	}
}

// acceptsAnew waits until the process answers over a new connection.
func (l *lab) acceptsAnew(p *process, limit time.Duration) {
	l.Helper()
	began := time.Now()
	eventually(l, limit, "the API answers over a new connection", func() error {
		fresh := newClient(p.base)
		defer fresh.http.CloseIdleConnections()
		fresh.http.Timeout = time.Second
		_, err := fresh.list(l.Context(), nil)
		return err
	})
	l.remark("a new connection is served %s after there are descriptors again", time.Since(began).Round(10*time.Millisecond))
}

// noNames silences the only name server that the process knows. Callbacks to names wait for it, uncharged; those to addresses
// notice nothing.
func noNames(l *lab, silence func(*nameServer)) {
	ns := startNameServer(l, "shop.test.")
	port := l.everywhere()
	p := serve(l.T, launch{on: l.on, args: append(l.args, "--workers", "128"), under: ns.program()})
	l.join(p)
	// The name server and the receiver live in a test that may be short of time itself: neither is to be late by it.
	policy := submission{"tiers": []string{"1s", "1s"}, "timeout": "6s"}
	shape := func(i int) submission {
		s := l.callback("plain", fmt.Sprint("address-", i))
		s["policy"] = policy
		if i%2 == 0 {
			return s
		}
		s["ref"], s["idempotency_key"] = fmt.Sprint("name-", i), fmt.Sprint("key-name-", i)
		s["payload"] = payload(fmt.Sprint("name-", i))
		// Each is another host: an open connection needs no name.
		s["url"] = fmt.Sprintf("http://m%d.shop.test:%s/plain/%d", i, port, i)
		return s
	}
	began := time.Now()
	ld := l.load(40, shape)
	l.awaitSends(40)
	w := l.watch(p)
	if c := l.chargesOf("name"); c.charged == 0 {
		l.Error("no callback to a name was sent while the name server answered")
	}
	l.struck()
	silence(ns)
	from := time.Now()
	time.Sleep(long(l, time.Minute, 9*time.Second)) // the fault lasts, by the clock
	g := w.during(from, time.Now())
	silent := time.Since(from)
	ns.listen()
	l.struck()
	if g.accepts[http.StatusAccepted] == 0 || len(g.accepts) > 1 {
		l.Errorf("accepts suffered from a dead name server: %s", g)
	}
	l.remark("without names for %s: %s", silent.Round(time.Second), g)
	l.awaitSends(l.sqlRate())
	l.moderate(w, time.Since(began))
	ld.finish()
	l.settle(2 * time.Minute)
	v := l.verdict(judge.Bounds{Heal: time.Minute})
	l.uncharged("name")
	l.unaffected(v)
}

// unaffected checks that callbacks to addresses were each sent once, on time.
func (l *lab) unaffected(v judge.Verdict) {
	l.Helper()
	c := l.chargesOf("address")
	if c.callbacks == 0 || c.charged != c.callbacks || c.failed > 0 || c.diverted > 0 {
		l.Errorf("callbacks to addresses are affected: %+v", c)
	}
	l.remark("%d callbacks to addresses, none affected; %d names asked", c.callbacks, v.Sends-c.callbacks)
}

// answersLate has receivers that answer half a second after the time-out: they have acted on it, we cannot know. Both requests are
// made, both are recorded and charged, and carry one id.
func answersLate(l *lab) {
	n := long(l, 500, 60)
	l.w.behave(func(h *hit) reply {
		if h.nth == 1 {
			return reply{status: 200, after: 1500 * time.Millisecond}
		}
		return reply{status: 200}
	})
	l.serve()
	l.struck()
	l.acceptMany(n, func(i int) submission {
		s := l.callback("plain", fmt.Sprint("late-", i))
		s["policy"] = submission{"tiers": []string{"2s", "2s"}, "timeout": "1s"}
		s["lane"] = fmt.Sprint("lane-", i%20)
		return s
	})
	l.settle(2 * time.Minute)
	v := l.verdict(judge.Bounds{Heal: time.Minute})
	if v.Sends != 2*n || v.Duplicates != 0 {
		l.Errorf("%d sends, %d duplicates; want %d sends, each charged", v.Sends, v.Duplicates, 2*n)
	}
	attempts, err := readAttempts(l.Context(), l.database())
	if err != nil {
		l.Fatal(err)
	}
	wrong := 0
	for _, a := range attempts {
		first := a.Number == 1 && a.Class == "timeout_headers" && a.Outcome == "unknown" && a.Charged
		second := a.Number == 2 && a.Class == "ok" && a.Outcome == "succeeded" && a.Charged
		if !first && !second {
			wrong++
		}
	}
	if wrong > 0 || len(attempts) != 2*n {
		l.Errorf("%d of %d attempts are neither a first that timed out, charged and of unknown outcome, nor a second that succeeded", wrong, len(attempts))
	}
	l.remark("%d callbacks, %d sends, %d of unknown outcome", n, v.Sends, v.Uncertain)
}
