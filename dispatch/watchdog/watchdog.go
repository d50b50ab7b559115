// Package watchdog sends the alerts about SQL, the index and the master keys of its process. It needs none of
// them: its state is in memory, and it sends with the guarded client.
//
//   - A state that lasts for After makes one message, and its end another one.
//   - Each sink has its own queue, retries and rate. A sink that is down delays no other.
//   - Queues are bounded. A message that cannot be delivered is given up and counted. While its state lasts,
//     another one follows after repeatAfter.
//
// A restart forgets what was sent. With several processes each sends its own messages, with its name, and has
// an equal share of the rate.
package watchdog

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sink"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
)

const (
	// After is how long a state lasts before its message. A restart of Redis or a failover of PostgreSQL is
	// shorter.
	After = 20 * time.Second
	// every is the interval of the checks, checkTimeout the most that one takes.
	every        = 2 * time.Second
	checkTimeout = 5 * time.Second
	// shareEvery is how often the number of processes is read.
	shareEvery = 30 * time.Second
)

// A Subject is what a check looks at.
type Subject string

// The subjects.
const (
	SQL   Subject = "sql"
	Index Subject = "index"
	Keys  Subject = "keys"
)

// A Check reports whether a subject fails now, and whether that is known. What is not known neither fires nor
// resolves. It returns within a few seconds of the end of ctx.
type Check struct {
	Subject Subject
	Fails   func(ctx context.Context) (fails, known bool)
}

// A Sender makes one attempt. *outbound.Client implements it.
type Sender interface {
	Send(ctx context.Context, r outbound.Request) outbound.Response
}

// A Share is the part of a robot's rate that this process uses: it is number Place, from 0, Of so many. The
// zero value is the whole rate.
type Share struct{ Place, Of int }

// Options configure a Watchdog. Sinks, Sender and Checks are required.
type Options struct {
	Sinks  []sink.Config
	Sender Sender
	Checks []Check
	// Share is asked while no check fails. After an error the last answer holds. Nil: the whole rate.
	Share func(ctx context.Context) (Share, error)
	// Process is the name of the process in messages.
	Process string
	// Link is a URL of the pages; empty: none.
	Link    string
	Logger  *slog.Logger
	Metrics process.Metrics
}

// A Watchdog watches its process. Run runs it.
type Watchdog struct {
	o       Options
	watched []*watched
	posts   []*post
	log     *slog.Logger
	shareAt time.Time // of the last question
}

// New returns a Watchdog. Its error says that a sink is not valid.
func New(o Options) (*Watchdog, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Watchdog{o: o, log: o.Logger}
	for _, c := range o.Checks {
		w.watched = append(w.watched, &watched{Check: c})
	}
	messages := o.Metrics.CounterVec("own_alerts_total", "Messages to the sinks of alert_sink, by result: "+
		"sent, or failed after all attempts.", "result", resultSent, resultFailed)
	for i, config := range o.Sinks {
		count := func(result string) { messages.WithLabelValues(result).Inc() }
		p, err := newPost(config, o.Sender, o.Logger, count)
		if err != nil {
			return nil, fmt.Errorf("alert_sink %d: %w", i+1, err)
		}
		w.posts = append(w.posts, p)
	}
	return w, nil
}

// HasSinks reports whether there is a sink to send to.
func (w *Watchdog) HasSinks() bool { return len(w.posts) > 0 }

// The results of messages.
const (
	resultSent   = "sent"
	resultFailed = "failed"
)

// Run watches and sends until ctx ends. Messages that are still queued then are lost, and logged.
func (w *Watchdog) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, p := range w.posts {
		all.Go(func() { p.run(ctx) })
	}
	defer all.Wait()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// A watched is a check with its state.
type watched struct {
	Check
	// reported: the last message says that the subject fails. since is when it began to differ. Zero:
	// it does not.
	reported bool
	since    time.Time
}

// look makes all checks.
func (w *Watchdog) look(ctx context.Context) {
	calm := true
	for _, c := range w.watched {
		within, cancel := context.WithTimeout(ctx, checkTimeout)
		fails, known := c.Fails(within)
		cancel()
		if ctx.Err() != nil {
			return // the check may have failed because of the end
		}
		calm = calm && known && !fails
		if !known {
			c.since = time.Time{}
			continue
		}
		switch state, since := c.next(fails, time.Now()); state {
		case sink.Firing:
			w.log.Error("alert about this process", "subject", string(c.Subject), "since", since)
			w.publish(c.Subject, state, since)
		case sink.Resolved:
			w.log.Info("alert about this process is over", "subject", string(c.Subject))
			w.publish(c.Subject, state, since)
		}
	}
	for _, p := range w.posts {
		p.repeat(time.Now())
	}
	if calm {
		w.readShare(ctx)
	}
}

// readShare reads the share of this process if the last one is old.
func (w *Watchdog) readShare(ctx context.Context) {
	if w.o.Share == nil || time.Since(w.shareAt) < shareEvery {
		return
	}
	w.shareAt = time.Now()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	share, err := w.o.Share(ctx)
	if err != nil {
		w.log.Warn("the number of processes cannot be read, alert_sink keeps its rate", "error", err)
		return
	}
	for _, p := range w.posts {
		p.setShare(share)
	}
}

// next returns the state that becomes a message now, or "", and when it began. A state must last for After
// in both directions, so a subject that comes and goes makes one message.
func (c *watched) next(fails bool, now time.Time) (state sink.State, since time.Time) {
	if fails == c.reported {
		c.since = time.Time{}
		return "", since
	}
	if c.since.IsZero() {
		c.since = now
	}
	if now.Sub(c.since) < After {
		return "", since
	}
	since, c.since, c.reported = c.since, time.Time{}, fails
	if fails {
		return sink.Firing, since
	}
	return sink.Resolved, since
}

// publish queues the message of a state at all sinks.
func (w *Watchdog) publish(subject Subject, state sink.State, since time.Time) {
	id := fmt.Sprintf("%s-%s-%d", subject, state, since.UnixMilli())
	for _, p := range w.posts {
		p.publish(subject, queued{
			message: p.message(subject, state, since, w.o.Process, w.o.Link, id), id: id,
		})
	}
}

// texts are the titles and the cures of a subject in one language.
type texts struct {
	titles map[Subject]string
	cures  map[Subject]string
	since  string
	name   string
}

var languages = map[string]texts{
	sink.English: {
		map[Subject]string{
			SQL: "SQL cannot commit", Index: "the queue is lost or is being rebuilt",
			Keys: "a master key is missing or a stored secret cannot be decrypted",
		},
		map[Subject]string{
			SQL: "Nothing is accepted and nothing is sent until SQL commits. Check the database and " +
				"its disk.",
			Index: "Callbacks are accepted, and sent once Redis answers and the queue is rebuilt. " +
				"Check Redis.",
			Keys: "Callbacks that need the secret wait. Give all master keys to all processes " +
				"(dispatcher doctor names what is missing).",
		},
		"Since", "Process",
	},
	sink.Chinese: {
		map[Subject]string{
			SQL: "数据库无法提交", Index: "调度队列丢失或正在重建",
			Keys: "缺少主密钥，或有密文无法解密",
		},
		map[Subject]string{
			SQL:   "数据库恢复之前不会受理，也不会发送。请检查数据库和磁盘。",
			Index: "回调照常受理；Redis 恢复、调度队列重建之后继续发送。请检查 Redis。",
			Keys:  "需要该密钥的回调会一直等待。请为所有进程配置全部主密钥（dispatcher doctor 会列出缺少的密钥）。",
		},
		"起始时间", "进程",
	},
}

// message returns the message of a state in the language of the sink.
func (p *post) message(
	subject Subject, state sink.State, since time.Time, name, link, id string,
) sink.Message {
	t, ok := languages[p.config.Language]
	if !ok {
		t = languages[sink.English]
	}
	m := sink.Message{ID: id, State: state, Title: t.titles[subject], Link: link, At: time.Now()}
	if state == sink.Firing {
		m.Lines = append(m.Lines, t.cures[subject])
	}
	m.Lines = append(m.Lines, t.since+": "+since.Format("2006-01-02 15:04:05 -07:00"), t.name+": "+name)
	return m
}

// logged are the attributes of a message in the log. They contain no credential.
func (p *post) logged(q *queued) []any {
	return []any{"sink", p.config.Type, "host", p.config.Host(), "message", q.id}
}

// classOf is why an attempt failed, for the log.
func classOf(r *outbound.Response) []any {
	return []any{"class", string(r.Class), "status", r.Status, "error", r.Error, "answer", answer(r)}
}

// answer is the beginning of what a sink answered, with credentials masked.
func answer(r *outbound.Response) string {
	text := []rune(r.ResponseBody)
	return string(text[:min(len(text), 200)])
}
