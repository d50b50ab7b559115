package main

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A counter is a proxy on the loopback that counts the bytes of one link.
type counter struct {
	address        string
	sent, received atomic.Int64 // to the server, and from it
}

// startCounter starts a proxy before the server at an address. It ends with the run.
func startCounter(tb testing.TB, server string) *counter {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { listener.Close() }) // connections end with their clients
	c := &counter{address: listener.Addr().String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			conn, err := net.Dial("tcp", server)
			if err != nil { // the client sees what it would see of the server
				client.Close()
				continue
			}
			var both sync.WaitGroup
			both.Go(func() { copyCounted(conn, client, &c.sent) })
			both.Go(func() { copyCounted(client, conn, &c.received) })
		}
	}()
	return c
}

// copyCounted copies until one side is closed, and closes both.
func copyCounted(to, from net.Conn, count *atomic.Int64) {
	_, _ = io.Copy(countedWriter{to, count}, from) // its error is that of a closed connection
	to.Close()
	from.Close()
}

type countedWriter struct {
	io.Writer
	count *atomic.Int64
}

func (w countedWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.count.Add(int64(n))
	return n, err
}

// before puts a counter before the server of a URL and returns the URL of the counter.
func before(r *run, server string) (*counter, string) {
	u, err := url.Parse(server)
	r.check("URL", err)
	c := startCounter(r, u.Host)
	u.Host = c.address
	return c, u.String()
}

// The links of a dispatcher, and the phases in which their bytes are counted.
var (
	links = []string{
		"callers to the dispatcher", "dispatcher to the receiver",
		"dispatcher to PostgreSQL", "dispatcher to Redis",
	}
	wirePhases = []string{"accepted in a batch", "accepted alone", "delivered at once"}
)

// A traffic is the bytes of one callback on a link, there and back.
type traffic struct{ sent, received float64 }

// wire counts the bytes of a callback on each link of a dispatcher.
func (s *scale) wire() error {
	var counted [3][]traffic // by phase and link
	if err := s.in("postgres", func(r *run) { counted = countTraffic(r) }); err != nil {
		return err
	}
	batch, alone, delivered := counted[0], counted[1], counted[2]
	t := &table{title: "Bytes on the wire for one callback", texts: 1, header: []string{"link"}}
	for _, p := range wirePhases {
		t.header = append(t.header, p+": there", "and back")
	}
	for link, name := range links {
		cells := []string{name}
		for _, of := range counted {
			cells = append(cells, fmt.Sprintf("%.0f", of[link].sent), fmt.Sprintf("%.0f", of[link].received))
		}
		t.add(cells...)
	}
	if batch[0].sent < payloadSize || alone[0].sent < payloadSize || delivered[1].sent < payloadSize {
		return fmt.Errorf("a link carried less than the bodies: %v", counted)
	}
	in := numbers{
		"api_in": alone[0].sent, "api_out": alone[0].received,
		"sent": delivered[1].sent, "answered": delivered[1].received,
		"sql_in": alone[2].sent + delivered[2].sent, "sql_out": alone[2].received + delivered[2].received,
		"redis_wire": alone[3].sent + alone[3].received + delivered[3].sent + delivered[3].received,
	}
	intro := fmt.Sprintf("Bodies of %d bytes, batches of %d, keep-alive, no TLS; %d callbacks.",
		payloadSize, batchSize, s.n)
	return s.publish("scale-wire", intro, in, fmt.Sprintf("As it grows, %d callbacks", s.n), t)
}

func countTraffic(r *run) (counted [3][]traffic) {
	receiving, target := before(r, r.receiver.url)
	sql, database := before(r, testserver.NewPostgres(r).Database(r))
	index, redis := before(r, testserver.NewRedis(r).URL)
	d := r.launch([]string{"--data-dir", r.TempDir(), "--database-url", database, "--redis-url", redis})
	r.awaitReady(d, startTime)
	api, _ := before(r, d.base)
	d.client.Addr = api.address
	s := &session{run: r, dispatcher: d, url: target}
	s.warmUp()
	counters := []*counter{api, receiving, sql, index}
	during := func(phase func()) []traffic {
		of := make([]traffic, len(counters))
		for i, c := range counters {
			of[i] = traffic{-float64(c.sent.Load()), -float64(c.received.Load())}
		}
		phase()
		for i, c := range counters {
			of[i].sent = (of[i].sent + float64(c.sent.Load())) / float64(r.n)
			of[i].received = (of[i].received + float64(c.received.Load())) / float64(r.n)
		}
		return of
	}
	var b backlog
	counted[0] = during(func() { b = s.prepare(r.n, dueAll) })
	time.Sleep(time.Until(b.due(0))) // of the plan
	counted[2] = during(func() { s.arrived(b.arriving) })
	counted[1] = during(func() { acceptSingly(s) })
	return counted
}
