package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A counter is a proxy on the loopback that counts what passes, so that bytes on a wire can be told by what they are for.
type counter struct {
	address  string
	sent     atomic.Int64 // to the server
	received atomic.Int64 // from it
	listener net.Listener
	running  sync.WaitGroup
	mu       sync.Mutex
	open     []net.Conn
}

// startCounter starts one before the server at that address. It ends with the test.
func startCounter(t *testing.T, server string) *counter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{address: listener.Addr().String(), listener: listener}
	c.running.Go(func() { c.serve(server) })
	t.Cleanup(func() {
		listener.Close()
		c.mu.Lock()
		for _, conn := range c.open {
			conn.Close()
		}
		c.mu.Unlock()
		c.running.Wait()
	})
	return c
}

// serve passes connections on until the listener is closed. One whose server cannot be reached is closed, as the server would.
func (c *counter) serve(server string) {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		conn, err := net.Dial("tcp", server)
		if err != nil {
			client.Close()
			continue
		}
		c.mu.Lock()
		c.open = append(c.open, client, conn)
		c.mu.Unlock()
		c.running.Go(func() { pass(conn, client, &c.sent) })
		c.running.Go(func() { pass(client, conn, &c.received) })
	}
}

// pass copies until one side is closed, and closes the other.
func pass(to, from net.Conn, count *atomic.Int64) {
	_, _ = io.Copy(countingWriter{to, count}, from) // whoever reads from it hears of it
	to.Close()
	from.Close()
}

type countingWriter struct {
	io.Writer
	count *atomic.Int64
}

func (w countingWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.count.Add(int64(n))
	return n, err
}

// behind is the address with this proxy in the place of the server.
func (c *counter) behind(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	u.Host = c.address
	return u.String(), nil
}

// A wire is what one link has carried, in bytes.
type wire struct{ sent, received int64 }

// wires are the links of a dispatcher.
var wires = []string{"callers to the dispatcher", "dispatcher to the receiver", "dispatcher to PostgreSQL", "dispatcher to Redis"}

// A wiring is a dispatcher all of whose connections are counted.
type wiring struct {
	*session
	counters []*counter // as wires
}

func newWiring(t *testing.T, r *round) *wiring {
	t.Helper()
	database, index := testserver.NewPostgres(t).Database(t), testserver.NewRedis(t)
	host := func(address string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return u.Host
	}
	behind := func(c *counter, address string) string {
		through, err := c.behind(address)
		if err != nil {
			t.Fatal(err)
		}
		return through
	}
	receiving, sql, redis := startCounter(t, host(r.receiver.url)), startCounter(t, host(database)), startCounter(t, index.Address())
	counted := &receiver{pid: r.receiver.pid, url: behind(receiving, r.receiver.url)}
	d := startDispatcher(t, r.binary, connections, counted, []string{
		"--data-dir", t.TempDir(), "--database-url", behind(sql, database), "--redis-url", behind(redis, index.URL),
	})
	api := startCounter(t, strings.TrimPrefix(d.base, "http://"))
	d.client.Addr = api.address
	r.roles[d.pid] = roleDispatcher
	return &wiring{session: &session{dispatcher: d, round: r, t: t, f: figures{}}, counters: []*counter{api, receiving, sql, redis}}
}

func (w *wiring) read() []wire {
	all := make([]wire, len(w.counters))
	for i, c := range w.counters {
		all[i] = wire{c.sent.Load(), c.received.Load()}
	}
	return all
}

// put adds what each link has carried since then, by callback.
func (w *wiring) put(phase string, since []wire, n int) {
	for i, now := range w.read() {
		w.f[wires[i]+" "+phase+" sent"] = float64(now.sent-since[i].sent) / float64(n)
		w.f[wires[i]+" "+phase+" received"] = float64(now.received-since[i].received) / float64(n)
	}
}

// The phases of which bytes are counted.
const (
	inBatches = "accepted in a batch"
	alone     = "accepted alone"
	once      = "delivered at once"
)

// TestWire counts the bytes of a callback on each link of a dispatcher.
func TestWire(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the binary and servers")
	}
	r := firstRound(t)
	r.system = systems[2]
	w := newWiring(t, &r)
	w.warm()
	before := w.read()
	b := w.prepare(w.n, dueAll)
	w.put(inBatches, before, w.n)
	time.Sleep(time.Until(b.due(0)))
	before = w.read()
	w.arrived(w.n)
	w.put(once, before, w.n)
	before = w.read()
	singles := max(1, w.n/2)
	due := time.Now().Add(farAhead).Truncate(time.Millisecond)
	if _, err := w.acceptSingles(singles, due); err != nil {
		t.Fatal(err)
	}
	w.scheduled += singles
	w.indexed(w.scheduled, due)
	w.put(alone, before, singles)
	if err := w.bodiesPassed(); err != nil {
		t.Fatal(err)
	}
	section{
		fmt.Sprintf("%s Bodies of %d bytes, batches of %d, connections that are kept, without TLS; %d callbacks, and half as many alone.", machine(t), payloadSize, batchSize, w.n),
		[]titled{{"Bytes on the wire for one callback", wireTable(w.f)}},
	}.publish(t, blockWire)
	publishInputs(t, w.inputs(), fmt.Sprintf("As it grows, %d callbacks", w.n))
}

// inputs are those of docs/scaling.md that are measured here.
func (w *wiring) inputs() inputs {
	of := func(link int, phase, way string) float64 { return w.f[wires[link]+" "+phase+" "+way] }
	both := func(link int, way string) float64 { return of(link, alone, way) + of(link, once, way) }
	return inputs{
		"api_in": of(0, alone, "sent"), "api_out": of(0, alone, "received"), "sent": of(1, once, "sent"), "answered": of(1, once, "received"),
		"sql_in": both(2, "sent"), "sql_out": both(2, "received"), "redis_wire": both(3, "sent") + both(3, "received"),
	}
}

// bodiesPassed fails when a body cannot have passed where it must have. A dispatcher that has accepted a callback need not read it
// again to deliver it.
func (w *wiring) bodiesPassed() error {
	var errs []error
	for _, must := range []string{
		wires[0] + " " + inBatches + " sent", wires[0] + " " + alone + " sent", wires[1] + " " + once + " sent", wires[2] + " " + inBatches + " sent",
	} {
		if w.f[must] < payloadSize {
			errs = append(errs, fmt.Errorf("%s: %.0f bytes, less than a body", must, w.f[must]))
		}
	}
	return errors.Join(errs...)
}

func wireTable(f figures) table.Writer {
	w := newTable(1, "link", inBatches+": there", "and back", alone+": there", "and back", once+": there", "and back")
	for _, link := range wires {
		line := table.Row{link}
		for _, phase := range []string{inBatches, alone, once} {
			line = append(line, fmt.Sprintf("%.0f", f[link+" "+phase+" sent"]), fmt.Sprintf("%.0f", f[link+" "+phase+" received"]))
		}
		w.AppendRow(line)
	}
	return w
}
