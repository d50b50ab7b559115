package faults

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// everywhere opens another address of the receiver, which every host of 127.0.0.0/8 reaches, and returns its
// port.
func (tr *trial) everywhere() string {
	tr.Helper()
	_, port, err := net.SplitHostPort(tr.Receiver.Listen(tr, "0.0.0.0:0"))
	tr.Check(err)
	return port
}

// charges are the numbers that SQL has for a group of callbacks.
type charges struct{ callbacks, charged, diverted, failed int }

// chargesOf counts the callbacks whose ref begins with the prefix.
func (tr *trial) chargesOf(prefix string) (c charges) {
	tr.Helper()
	like := prefix + "%"
	row := tr.Database().QueryRowContext(tr.Context(), `SELECT count(*), coalesce(sum(attempt_count), 0),
		coalesce(sum(CASE WHEN divert_count > 0 THEN 1 ELSE 0 END), 0)
		FROM callbacks JOIN requests USING (project, id) WHERE ref LIKE $1`, like)
	tr.Check(row.Scan(&c.callbacks, &c.charged, &c.diverted))
	c.failed = tr.sqlCount(`SELECT count(*) FROM attempts a
		JOIN requests r ON r.project = a.project AND r.id = a.callback_id
		WHERE r.ref LIKE $1 AND a.outcome <> 'succeeded'`, like)
	return c
}

// uncharged checks that a local fault cost these callbacks nothing: they were only diverted, and charged for
// their one success.
func (tr *trial) uncharged(prefix string) {
	tr.Helper()
	c := tr.chargesOf(prefix)
	if c.callbacks == 0 || c.diverted == 0 {
		tr.Errorf("%d callbacks %s…, %d of them diverted: the fault hit none", c.callbacks, prefix,
			c.diverted)
	}
	if c.charged != c.callbacks || c.failed > 0 {
		tr.Errorf("%d callbacks %s… were charged %d attempts, want one for each; %d failed",
			c.callbacks, prefix, c.charged, c.failed)
	}
	tr.Remark("callbacks %s…: %+v", prefix, c)
}

// noDescriptors leaves the process no free file descriptor, while some receivers hang and others respond. It
// can open no connection, so its attempts are postponed and not charged. Once it has descriptors again,
// everything goes on.
func noDescriptors(tr *trial) {
	const hosts, hanging = 200, 60
	port := tr.everywhere()
	tr.Receiver.AnswerKind("hang", harness.Reply{After: 5 * time.Second})
	// Each receiver is another host, so no connection can be reused.
	to := func(kind string, net int) func(int) harness.Submission {
		return func(i int) harness.Submission {
			s := tr.Numbered(kind)(i)
			s["url"] = fmt.Sprintf("http://127.0.%d.%d:%s/%s/%d", net, 1+i, port, kind, i)
			s["policy"] = harness.Tiers("20s", "1s", "1s", "1s", "1s")
			return s
		}
	}
	p := tr.Serve()
	tr.AcceptMany(hanging, to("hang", 1))
	tr.AtLeast(30*time.Second, "receivers hang", hanging, tr.Receiver.InFlight)
	// Open a few connections to the API, for the requests during the fault.
	tr.Check(harness.AtOnce(8, 8, func(int) error {
		_, err := p.ListAll(client.Filter{})
		return err
	}))
	// The limit is below the number of open descriptors, so the process cannot reopen one that it closes.
	tr.limitDescriptors(p, 16)
	from := time.Now()
	w := tr.watch(p)
	tr.AcceptMany(hosts, to("during", 2))
	time.Sleep(5 * time.Second) // the fault lasts for a fixed time
	if c := tr.chargesOf("during"); c.charged > 0 {
		tr.Errorf("%d attempts were charged without a file descriptor", c.charged)
	}
	g := w.during(from, time.Now())
	tr.limitDescriptors(p, 4096)
	tr.MarkFault()
	began := time.Now()
	tr.Eventually(10*time.Second, "the API answers over a new connection", func() error {
		fresh := harness.NewClient(p.Base)
		defer fresh.HTTP.CloseIdleConnections()
		fresh.HTTP.Timeout = time.Second
		_, err := fresh.ListAll(client.Filter{})
		return err
	})
	tr.Remark("without descriptors: %s; a new connection is served %s after there are some again", g,
		time.Since(began))
	if g.accepts[http.StatusAccepted] == 0 {
		tr.Errorf("no accept succeeded over a connection that was open: %s", g)
	}
	tr.moderate(w, time.Since(from))
	tr.End(2*time.Minute, judge.Bounds{Heal: time.Minute})
	tr.uncharged("during")
}

// limitDescriptors sets the soft limit of a running process's file descriptors.
func (tr *trial) limitDescriptors(p *harness.Process, n int) {
	tr.Helper()
	out, err := exec.Command("prlimit", "--pid", fmt.Sprint(p.Cmd.Process.Pid),
		fmt.Sprintf("--nofile=%d:", n)).CombinedOutput()
	if err != nil {
		tr.Fatalf("prlimit: %v: %s", err, out)
	}
}

// noNames silences the only name server of the process. Callbacks to host names are postponed and not
// charged. Callbacks to addresses are unaffected.
func noNames(tr *trial) {
	ns := startNameServer(tr)
	port := tr.everywhere()
	tr.Launch(harness.Launch{Args: []string{"--workers", "128"}, Under: ns.program()})
	// The name server and the receiver run in the test process, which may be slow. The timeout allows for
	// that.
	policy := harness.Tiers("6s", "1s", "1s")
	shape := func(i int) harness.Submission {
		s := tr.Numbered("address")(i)
		if i%2 == 1 {
			s = tr.Numbered("name")(i)
			// Each callback has another host, because an open connection needs no name.
			s["url"] = fmt.Sprintf("http://m%d.shop.test:%s/plain/%d", i, port, i)
		}
		s["policy"] = policy
		return s
	}
	_, v := tr.suffer(scenario{rate: sqlRate, around: sqlRate, shape: shape, strike: func(r *faultTrial) {
		tr.awaitSends(sqlRate)
		if c := tr.chargesOf("name"); c.charged == 0 {
			tr.Error("no callback to a name was sent while the name server answered")
		}
		ns.silent.Store(true)
		from := time.Now()
		time.Sleep(9 * time.Second) // the fault lasts for a fixed time
		g := r.w.during(from, time.Now())
		ns.silent.Store(false)
		if g.accepts[http.StatusAccepted] == 0 || len(g.accepts) > 1 {
			tr.Errorf("accepts suffered from a dead name server: %s", g)
		}
		tr.awaitSends(sqlRate)
	}, bounds: func() judge.Bounds { return judge.Bounds{Heal: time.Minute} }})
	tr.uncharged("name")
	// Callbacks to addresses were each sent once, on time.
	c := tr.chargesOf("address")
	if c.callbacks == 0 || c.charged != c.callbacks || c.failed > 0 || c.diverted > 0 {
		tr.Errorf("callbacks to addresses are affected: %+v", c)
	}
	tr.Remark("%d callbacks to addresses, none affected; %d sends to names", c.callbacks, v.Sends-c.callbacks)
}

// A nameServer answers every name with 127.0.0.1 over UDP until it is silent. Processes under its program use
// no other name server.
type nameServer struct {
	l       *trial
	address string
	silent  atomic.Bool // true: it reads questions and sends no answer
}

// nameServers counts the addresses that were tried.
var nameServers atomic.Uint32

// startNameServer listens on port 53 of an unused address, because a resolv.conf cannot name another port.
func startNameServer(tr *trial) *nameServer {
	s := &nameServer{l: tr}
	var conn net.PacketConn
	for range 250 {
		// No address is used twice. One that is free at the moment may still belong to a trial.
		s.address = net.IPv4(127, 53, 53, byte(1+nameServers.Add(1)%250)).String()
		var err error
		conn, err = net.ListenPacket("udp4", net.JoinHostPort(s.address, "53"))
		if os.IsPermission(err) {
			tr.Fatalf("this test answers names on port 53 and mounts a resolv.conf: run it as root: %v", err)
		}
		if conn != nil {
			break
		}
	}
	if conn == nil {
		tr.Fatal("no address of 127.53.53.0/24 has port 53 free")
	}
	tr.Cleanup(func() { conn.Close() })
	go s.serve(conn)
	return s
}

// program runs a process with its own resolv.conf, which names only this name server.
func (s *nameServer) program() []string {
	s.l.Helper()
	file := filepath.Join(s.l.TempDir(), "resolv.conf")
	s.l.Check(os.WriteFile(file, []byte("nameserver "+s.address+"\noptions timeout:1 attempts:2\n"), 0o644))
	return []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, file}
}

// serve answers questions until the connection is closed.
func (s *nameServer) serve(conn net.PacketConn) {
	buffer := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		if reply := answer(buffer[:n]); reply != nil && !s.silent.Load() {
			conn.WriteTo(reply, from) // without this reply the resolver repeats its question
		}
	}
}

// answer builds the reply to one question (RFC 1035 §4.1): the header, the question, and one record if it is
// for an IPv4 address.
func answer(question []byte) []byte {
	const header, typeA = 12, 1
	end := header
	for end < len(question) && question[end] != 0 {
		end += 1 + int(question[end])
	}
	end += 5 // the empty label, type and class
	if end > len(question) {
		return nil
	}
	// An answer, with recursion.
	reply := []byte{question[0], question[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}
	reply = append(reply, question[header:end]...)
	if question[end-3] == typeA {
		reply[7] = 1
		reply = append(reply, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
	}
	return reply
}

// memoryOfFloods is the allowed growth of a process by responses without an end. Each of 512 attempts in
// flight may use 64 KiB for the head and as much for the body, and a late garbage collection doubles that. A
// process that kept whole responses would need 400 MB for a single one.
const memoryOfFloods = 256 << 20

// flooded has receivers that respond with hundreds of megabytes, with an endless head, and with an endless
// body.
func flooded(tr *trial) {
	body := strings.Repeat("SUCCESS ", 1<<17) // a megabyte
	tr.Receiver.Answer(func(a *harness.Arrival) harness.Reply {
		switch a.Kind() {
		case "huge":
			return harness.Reply{Stream: func(w http.ResponseWriter) { endlessly(w, body, 400) }}
		case "endless":
			return harness.Reply{Stream: func(w http.ResponseWriter) { endlessly(w, body, 1<<30) }}
		case "head":
			return harness.Reply{Stream: endlessHead}
		}
		return harness.Usual(a)
	})
	p := tr.Serve()
	tr.Check(p.ForgetPeak())
	before, err := p.ResidentMemory()
	tr.Check(err)
	kinds := []string{"huge", "endless", "head", "plain"}
	n := testserver.Sized(160, 2000, 2000)
	tr.AcceptEach(n, func(i int) harness.Submission {
		s := tr.Numbered(kinds[i%4])(i)
		s["policy"] = harness.Tiers("5s", "500ms")
		// 63 is odd, so each lane has all kinds. A lane with only endless heads would get no response: on a
		// busy machine, where 20 attempts take over 10 s, its breaker would open and allow one attempt in 15
		// s.
		s["lane"] = fmt.Sprint("lane-", i%63)
		return s
	})
	tr.Settle(2 * time.Minute)
	peak, err := p.PeakMemory()
	tr.Check(err)
	if peak-before > memoryOfFloods {
		tr.Errorf("the process grew from %s to %s", harness.Megabytes(before), harness.Megabytes(peak))
	}
	// A response with an endless head counts as none. With an endless body, the status decides.
	tr.Verdict(judge.Bounds{Expect: deadAre("head")})
	tr.Remark("%d answers of 400 MB, endless bodies and endless heads: resident memory %s before, %s at most",
		n*3/4, harness.Megabytes(before), harness.Megabytes(peak))
}

// endlessly writes the text up to `times` times, until the client closes the connection.
func endlessly(w http.ResponseWriter, text string, times int) {
	w.WriteHeader(http.StatusOK)
	for range times {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// endlessHead writes header fields until the client closes the connection.
func endlessHead(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the judge then finds an unexpected response
	}
	defer conn.Close()
	text := "HTTP/1.1 200 OK\r\n"
	for i := 0; ; i++ {
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
		text = fmt.Sprintf("X-Filler-%d: %s\r\n", i, strings.Repeat("x", 1000))
	}
}
