package faults

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// namesOf answers names of the zone shop.test with addresses, and those of bank.test not at all well.
func namesOf(t *testing.T) *nameServer {
	t.Helper()
	s := startNameServer(&trial{&harness.Trial{T: t}}, "shop.test.")
	s.close() // another one takes its place
	conn, err := net.ListenPacket("udp4", net.JoinHostPort(s.address, "53"))
	if err != nil {
		t.Fatal(err)
	}
	s.ended.Go(func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return // closed
			}
			if reply := oddly(s, buffer[:n]); reply != nil {
				conn.WriteTo(reply, from) // who asks asks again
			}
		}
	})
	t.Cleanup(func() { conn.Close() }) // before that of the name server, which waits
	return s
}

// oddly answers one question by the first label of its name; nil: with silence.
func oddly(s *nameServer, question []byte) []byte {
	const first, rcode, serverFailure, answers = 12, 3, 2, 7
	reply := s.answer(question)
	if reply == nil {
		return nil
	}
	label := string(question[first+1 : first+1+int(question[first])])
	to := map[string]net.IP{"inside": net.IPv4(10, 0, 0, 7), "far": net.IPv4(127, 255, 255, 255)}[label]
	switch {
	case label == "mute":
		return nil
	case label == "broken":
		reply[rcode] = reply[rcode]&0xf0 | serverFailure
	case to != nil && reply[answers] == 1:
		copy(reply[len(reply)-net.IPv4len:], to.To4())
	}
	return reply
}

// deaf listens on a port whose queue of connections is full and never emptied: handshakes are begun and not answered.
func deaf(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var listenErr error
	if err := raw.Control(func(fd uintptr) { listenErr = syscall.Listen(int(fd), 0) }); err != nil || listenErr != nil {
		t.Fatal(err, listenErr)
	}
	for range 100 {
		conn, err := net.DialTimeout("tcp", l.Addr().String(), 300*time.Millisecond)
		if err != nil {
			return "http://" + l.Addr().String()
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("a listener that accepts nothing took a hundred connections")
	return ""
}

// What never gets as far as a receiver is charged all the same, for we were alive and could have reached one: a name that does not
// exist, a name whose own servers fail or are silent while others answer, a host that no way leads to or that takes no connection. A name
// that leads to where nothing may be sent is tried three times, for it may be mended, and then no more.
func TestReceiversThatCannotBeReached(t *testing.T) {
	harness.BlackBox(t)
	names := namesOf(t)
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded), Under: names.program()})
	well := misbehave(t, nil, answersWith(200, ""))
	port := well.url[strings.LastIndexByte(well.url, ':'):]
	// Whoever answers names lives in this test, which may be short of time itself.
	patient := harness.Submission{"policy": once(harness.Submission{"timeout": "6s"})}
	blocked := ends(37, "a name that leads to where nothing may be sent", "blocked", "failed", "dead", "blocked", nil).at("http://inside.shop.test" + port).with(
		harness.Submission{"policy": once(harness.Submission{"tiers": []string{"100ms", "100ms", "1h", "1h"}})})
	blocked.attempts = []string{"blocked", "blocked", "blocked"}
	for _, d := range []misdeed{
		ends(1, "a name that leads to one that answers", "ok", "succeeded", "succeeded", "", nil).at("http://well.shop.test" + port).with(patient),
		retried(16, "a name that does not exist", "dns_not_found", nil).at("http://none.bank.test" + port).with(patient),
		retried(17, "a name whose server fails", "dns_error", nil).at("http://broken.bank.test" + port).with(patient),
		retried(17, "a name whose server is silent", "dns_error", nil).at("http://mute.bank.test" + port).with(patient),
		retried(19, "an address that no way leads to", "unreachable", nil).at("http://127.255.255.255" + port),
		retried(19, "a name that no way leads to", "unreachable", nil).at("http://far.shop.test" + port).with(patient),
		retried(19, "a host that takes no connection", "connect_timeout", nil).at(deaf(t)),
		blocked,
	} {
		t.Run(fmt.Sprintf("%d %s", d.row, d.name), func(t *testing.T) {
			t.Parallel()
			d.judge(t, p)
		})
	}
	// The one that answers was sent one request, and nothing for any other.
	t.Cleanup(func() {
		if n := well.requests.Load(); n != 1 {
			t.Errorf("%d requests arrived; want 1", n)
		}
	})
}
