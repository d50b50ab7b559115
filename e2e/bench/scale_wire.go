package main

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A link is a proxy on the loopback before a server, which counts bytes.
type link struct {
	name, address  string
	sent, received atomic.Int64 // to the server, and from it
}

// linkTo starts a link to the server of a URL, and returns the URL of the link. It ends with the run.
func linkTo(r *run, name, server string) (*link, string) {
	u, err := url.Parse(server)
	r.check("URL", err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	r.check("listen", err)
	r.Cleanup(func() { listener.Close() }) // connections end with their clients
	l := &link{name: name, address: listener.Addr().String()}
	target := u.Host
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			conn, err := net.Dial("tcp", target)
			if err != nil { // the client sees what it would see of the server
				client.Close()
				continue
			}
			go copyCounted(conn, client, &l.sent)
			go copyCounted(client, conn, &l.received)
		}
	}()
	u.Host = l.address
	return l, u.String()
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

// wire counts the bytes on each link of a dispatcher for a callback that is accepted alone and delivered.
func (s *scale) wire() error {
	began := loadNow(s.tb)
	var links []*link
	if err := s.onServers(func(r *run) { links = countTraffic(r) }); err != nil {
		return err
	}
	t := &table{title: "Bytes on the wire for one callback", texts: 1}
	t.header = []string{"link", "there", "and back"}
	var sent, received []float64
	for i, l := range links {
		sent = append(sent, float64(l.sent.Load())/float64(s.n))
		received = append(received, float64(l.received.Load())/float64(s.n))
		t.add(l.name, fmt.Sprintf("%.0f", sent[i]), fmt.Sprintf("%.0f", received[i]))
	}
	if min(sent[0], sent[1], sent[2]) < payloadSize {
		return fmt.Errorf("a link carried less than the bodies: %v", t.rows)
	}
	in := numbers{
		"api_in": sent[0], "api_out": received[0], "sent": sent[1], "answered": received[1],
		"sql_in": sent[2], "sql_out": received[2], "redis_wire": sent[3] + received[3],
	}
	intro := fmt.Sprintf("Bodies of %d bytes, accepted one a request and delivered at once; "+
		"keep-alive, no TLS; %d callbacks.", payloadSize, s.n)
	return s.publish("scale-wire", intro, began, in, fmt.Sprintf("%d callbacks", s.n), t)
}

func countTraffic(r *run) []*link {
	receiving, target := linkTo(r, "dispatcher to the receiver", r.receiver.url)
	sql, database := linkTo(r, "dispatcher to PostgreSQL", testserver.NewPostgres(r).Database(r))
	index, redis := linkTo(r, "dispatcher to Redis", testserver.NewRedis(r).URL)
	d := r.launch([]string{"--data-dir", r.TempDir(), "--database-url", database, "--redis-url", redis})
	r.awaitReady(d, startTime)
	api, _ := linkTo(r, "callers to the dispatcher", d.base)
	d.client.Addr = api.address
	s := &session{run: r, dispatcher: d, url: target}
	s.warmUp()
	links := []*link{api, receiving, sql, index}
	for _, l := range links {
		l.sent.Store(0)
		l.received.Store(0)
	}
	mixed(s)
	return links
}
