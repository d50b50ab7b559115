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
)

// everywhere opens one more address of the receiver that any host of 127.0.0.0/8 and port leads to, and
// returns the port.
func (tr *trial) everywhere() string {
	tr.Helper()
	_, port, err := net.SplitHostPort(tr.Receiver.Listen(tr, "0.0.0.0:0"))
	tr.Check(err)
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
	tr.Check(row.Scan(&c.callbacks, &c.charged, &c.diverted))
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
		tr.Errorf("%d callbacks %s…, %d of them diverted: the fault hit none", c.callbacks, prefix,
			c.diverted)
	}
	if c.charged != c.callbacks || c.failed > 0 {
		tr.Errorf("%d callbacks %s… were charged %d attempts, want one for each; %d failed", c.callbacks,
			prefix,
			c.charged, c.failed)
	}
	tr.Remark("callbacks %s…: %+v", prefix, c)
}

// noDescriptors leaves the process no file descriptor more, with many receivers that hang and many that do
// not. Nothing can be connected to: what was to be sent is put off and not charged. Once there are
// descriptors again all goes on.
func noDescriptors(tr *trial) {
	const hosts, hanging = 200, 60
	port := tr.everywhere()
	tr.Receiver.AnswerKind("hang", harness.Reply{After: 5 * time.Second})
	// Each receiver is another host, so that no connection can be used again.
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
	// A few connections to the API, for the next requests.
	tr.Check(harness.AtOnce(8, 8, func(int) error {
		_, err := p.ListAll(client.Filter{})
		return err
	}))
	// Below what it has open: whatever it closes it cannot open again.
	tr.limitDescriptors(p, 16)
	from := time.Now()
	w := tr.watch(p)
	tr.AcceptMany(hosts, to("during", 2))
	time.Sleep(5 * time.Second) // the fault lasts, by the clock
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

// noNames silences the only name server that the process knows. Callbacks to names wait for it, uncharged;
// those to addresses notice nothing.
func noNames(tr *trial) {
	ns := startNameServer(tr)
	port := tr.everywhere()
	tr.Launch(harness.Launch{Args: []string{"--workers", "128"}, Under: ns.program()})
	// The name server and the receiver live in a test that may be short of time itself: neither is to be late
	// by it.
	policy := harness.Tiers("6s", "1s", "1s")
	shape := func(i int) harness.Submission {
		s := tr.Numbered("address")(i)
		if i%2 == 1 {
			s = tr.Numbered("name")(i)
			// Each is another host: an open connection needs no name.
			s["url"] = fmt.Sprintf("http://m%d.shop.test:%s/plain/%d", i, port, i)
		}
		s["policy"] = policy
		return s
	}
	_, v := tr.suffer(scenario{rate: sqlRate, around: sqlRate, shape: shape, strike: func(r *struck) {
		tr.awaitSends(sqlRate)
		if c := tr.chargesOf("name"); c.charged == 0 {
			tr.Error("no callback to a name was sent while the name server answered")
		}
		ns.silent.Store(true)
		from := time.Now()
		time.Sleep(9 * time.Second) // the fault lasts, by the clock
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
	tr.Remark("%d callbacks to addresses, none affected; %d names asked", c.callbacks, v.Sends-c.callbacks)
}

// A nameServer answers every name with 127.0.0.1, over UDP, until it falls silent. It is the only one of the
// processes that are run under its program.
type nameServer struct {
	l       *trial
	address string
	silent  atomic.Bool // it reads questions and answers none
}

// nameServers counts the addresses that were tried.
var nameServers atomic.Uint32

// startNameServer listens on port 53, which is the only one that a system's configuration can name, of an
// address of its own.
func startNameServer(tr *trial) *nameServer {
	s := &nameServer{l: tr}
	var conn net.PacketConn
	for range 250 {
		// No address is used twice: one that is closed at the moment may be a trial's all the same.
		s.address = net.IPv4(127, 53, 53, byte(1+nameServers.Add(1)%250)).String()
		var err error
		conn, err = net.ListenPacket("udp4", net.JoinHostPort(s.address, "53"))
		if err != nil &&
			os.IsPermission(err) {
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

// program runs a process that sees a resolv.conf of its own, with this name server alone.
func (s *nameServer) program() []string {
	s.l.Helper()
	file := filepath.Join(s.l.TempDir(), "resolv.conf")
	s.l.Check(os.WriteFile(file, []byte("nameserver "+s.address+"\noptions timeout:1 attempts:2\n"), 0o644))
	return []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, file}
}

// serve answers until the connection is closed.
func (s *nameServer) serve(conn net.PacketConn) {
	buffer := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		if reply := answer(buffer[:n]); reply != nil && !s.silent.Load() {
			conn.WriteTo(reply, from) // the resolver asks again
		}
	}
}

// answer makes the reply to one question (RFC 1035 §4.1): its header, the question itself, for an address one
// record.
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
	// an answer, with recursion
	reply := []byte{question[0], question[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}
	reply = append(reply, question[header:end]...)
	if question[end-3] == typeA {
		reply[7] = 1
		reply = append(reply, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
	}
	return reply
}

// memoryOfFloods is by how much answers without an end may grow a process. Each of 512 in flight may have 64
// KiB of head and of body, and a starved collector leaves as much again. A process that kept what is sent
// would take more than one answer, 400 MB.
const memoryOfFloods = 256 << 20

// flooded has receivers that answer with hundreds of megabytes, with a head that never ends, and with a body
// that never ends.
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
	n := sized(160, 2000, 2000)
	tr.AcceptEach(n, func(i int) harness.Submission {
		s := tr.Numbered(kinds[i%4])(i)
		s["policy"] = harness.Tiers("5s", "500ms")
		// 63 is odd, so that each lane has all kinds. A lane of endless heads alone gets no answer: on a busy
		// machine, where 20 attempts take over 10 s, its breaker opens and lets one attempt pass in 15 s.
		s["lane"] = fmt.Sprint("lane-", i%63)
		return s
	})
	tr.Settle(2 * time.Minute)
	peak, err := p.PeakMemory()
	tr.Check(err)
	if peak-before > memoryOfFloods {
		tr.Errorf("the process grew from %s to %s", harness.Megabytes(before), harness.Megabytes(peak))
	}
	// A head without an end is no answer; the status is one, whatever follows it.
	tr.Verdict(judge.Bounds{Expect: deadAre("head")})
	tr.Remark("%d answers of 400 MB, endless bodies and endless heads: resident memory %s before, %s at most",
		n*3/4, harness.Megabytes(before), harness.Megabytes(peak))
}

// endlessly writes the text so many times, or until the sender hangs up.
func endlessly(w http.ResponseWriter, text string, times int) {
	w.WriteHeader(http.StatusOK)
	for range times {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// endlessHead writes header fields until the sender hangs up.
func endlessHead(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the judge then sees an unexpected answer
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
