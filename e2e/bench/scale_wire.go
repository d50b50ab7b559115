package main

import (
	"fmt"
	"net/url"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A link is a wire that has a name.
type link struct {
	name string
	*testserver.Wire
}

// linkTo starts a link to the server of a URL, and returns the URL of the link. It ends with the run.
func linkTo(r *run, name, server string) (link, string) {
	u, err := url.Parse(server)
	r.check("URL", err)
	l := link{name, testserver.NewWire(r, u.Host, nil)}
	u.Host = l.Address
	return l, u.String()
}

// wire counts the bytes on each link of a dispatcher for a callback that is accepted alone and delivered.
func (s *scale) wire() error {
	began := loadNow(s.tb)
	var links []link
	if err := s.onServers(func(r *run) { links = countTraffic(r) }); err != nil {
		return err
	}
	t := &table{title: "Bytes on the wire for one callback", texts: 1}
	t.header = []string{"link", "there", "and back"}
	var sent, received []float64
	for i, l := range links {
		sent = append(sent, float64(l.Sent.Load())/float64(s.n))
		received = append(received, float64(l.Received.Load())/float64(s.n))
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

func countTraffic(r *run) []link {
	receiving, target := linkTo(r, "dispatcher to the receiver", r.receiver.url)
	sql, database := linkTo(r, "dispatcher to PostgreSQL", testserver.NewPostgres(r).Database(r))
	index, redis := linkTo(r, "dispatcher to Redis", testserver.NewRedis(r).URL)
	d := r.launch([]string{"--data-dir", r.TempDir(), "--database-url", database, "--redis-url", redis})
	r.awaitReady(d, startTime)
	api, _ := linkTo(r, "callers to the dispatcher", d.base)
	d.client.Addr = api.Address
	s := &session{run: r, dispatcher: d, url: target}
	s.warmUp()
	links := []link{api, receiving, sql, index}
	for _, l := range links {
		l.Sent.Store(0)
		l.Received.Store(0)
	}
	mixed(s)
	return links
}
