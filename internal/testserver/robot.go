package testserver

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The kinds of robots.
const (
	RobotDingTalk = "dingtalk"
	RobotWeCom    = "wecom"
	RobotFeishu   = "feishu"
	RobotSlack    = "slack"
	RobotTeams    = "teams"
)

// A Robot is a stand-in for the robot of a chat platform. It checks what the platform documents: the
// credential, the signature and its age, the format, the size and the rate, and answers the documented error.
type Robot struct {
	// URL is the whole URL. Secret is the signing secret of DingTalk and Feishu.
	URL, Secret string

	// credential is the secret part of URL.
	kind, credential string

	mu sync.Mutex
	// keyword must be in each message, unless it is empty.
	keyword string
	// perMinute replaces the platform's rate. Zero: the platform's.
	perMinute int
	// forced are answers for the next requests, before anything is checked.
	forced   []Answer
	accepted [][]byte
	refused  []string
	times    []time.Time
	blocked  time.Time
	// ahead is how far the robot's clock is ahead.
	ahead time.Duration
}

// An Answer is an answer of a robot.
type Answer struct {
	Status     int
	Body       string
	RetryAfter string
}

// NewRobot starts a robot that ends with the test.
func NewRobot(tb testing.TB, kind string) *Robot {
	tb.Helper()
	b := &Robot{kind: kind, credential: "credential-of-" + kind + "-3141592653589793"}
	path, ok := map[string]string{
		RobotDingTalk: "/robot/send?access_token=",
		RobotWeCom:    "/cgi-bin/webhook/send?key=",
		RobotFeishu:   "/open-apis/bot/v2/hook/",
		RobotSlack:    "/services/T0000/B0000/",
		RobotTeams:    "/workflows/1/triggers/manual/paths/invoke?api-version=2016-06-01&sig=",
	}[kind]
	if !ok {
		tb.Fatalf("no robot of the kind %q", kind)
	}
	if kind == RobotDingTalk || kind == RobotFeishu {
		b.Secret = "SEC-of-" + kind + "-0123456789abcdef"
	}
	server := httptest.NewServer(b)
	tb.Cleanup(server.Close)
	b.URL = server.URL + path + b.credential
	return b
}

// Secrets returns the credentials: that of the URL, and the signing secret if there is one.
func (b *Robot) Secrets() []string {
	if b.Secret == "" {
		return []string{b.credential}
	}
	return []string{b.credential, b.Secret}
}

// Kind returns the kind of the robot.
func (b *Robot) Kind() string { return b.kind }

// SetKeyword makes the robot refuse messages without a word.
func (b *Robot) SetKeyword(word string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keyword = word
}

// SetRate replaces the platform's rate by so many messages a minute.
func (b *Robot) SetRate(perMinute int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.perMinute = perMinute
}

// SetClock sets the robot's clock ahead.
func (b *Robot) SetClock(ahead time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ahead = ahead
}

func (b *Robot) now() time.Time { return time.Now().Add(b.ahead) }

// Force sets the answers to the next requests. They are not checked and not accepted.
func (b *Robot) Force(answers ...Answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forced = append(b.forced, answers...)
}

// Accepted returns the bodies of the accepted messages.
func (b *Robot) Accepted() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	bodies := make([]string, len(b.accepted))
	for i := range b.accepted {
		bodies[i] = string(b.accepted[i])
	}
	return bodies
}

// Refused returns why requests were refused.
func (b *Robot) Refused() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.refused...)
}

// ServeHTTP implements http.Handler.
func (b *Robot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	b.mu.Lock()
	defer b.mu.Unlock()
	var a Answer
	switch {
	case err != nil:
		a = Answer{Status: http.StatusBadRequest, Body: "unreadable"}
	case len(b.forced) > 0:
		a, b.forced = b.forced[0], b.forced[1:]
	default:
		a = b.answer(r, body)
	}
	if a.Status == 0 {
		b.accepted = append(b.accepted, body)
		a = accepted[b.kind]
	} else {
		b.refused = append(b.refused, fmt.Sprintf("%d %s", a.Status, a.Body))
	}
	if a.RetryAfter != "" {
		w.Header().Set("Retry-After", a.RetryAfter)
	}
	w.WriteHeader(a.Status)
	_, _ = io.WriteString(w, a.Body) // a client that is gone needs no answer
}

// accepted are the answers to accepted messages.
var accepted = map[string]Answer{
	RobotDingTalk: {Status: 200, Body: `{"errcode":0,"errmsg":"ok"}`},
	RobotWeCom:    {Status: 200, Body: `{"errcode":0,"errmsg":"ok"}`},
	RobotFeishu:   {Status: 200, Body: `{"StatusCode":0,"code":0,"data":{},"msg":"success"}`},
	RobotSlack:    {Status: 200, Body: "ok"},
	RobotTeams:    {Status: 202},
}

// answer checks a request. A zero status means that the message is accepted.
func (b *Robot) answer(r *http.Request, body []byte) Answer {
	mediaType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch {
	case r.Method != http.MethodPost:
		return Answer{Status: http.StatusMethodNotAllowed}
	case mediaType != "application/json":
		return Answer{Status: http.StatusUnsupportedMediaType}
	case !json.Valid(body):
		return Answer{Status: http.StatusBadRequest, Body: "invalid_payload"}
	}
	switch b.kind {
	case RobotDingTalk:
		return b.dingTalk(r, body)
	case RobotWeCom:
		return b.weCom(r, body)
	case RobotFeishu:
		return b.feishu(r, body)
	case RobotSlack:
		return b.slack(r, body)
	}
	return b.teams(r, body)
}

// tooFast counts a request, and reports whether there were more than so many in a span of time.
func (b *Robot) tooFast(most int, span time.Duration) bool {
	now := b.now()
	n := 0
	for _, at := range b.times {
		if now.Sub(at) < span {
			n++
		}
	}
	return n >= most
}

// perMin returns the rate for a minute.
func (b *Robot) perMin(platform int) int {
	if b.perMinute > 0 {
		return b.perMinute
	}
	return platform
}

// count counts an accepted message.
func (b *Robot) count() Answer {
	b.times = append(b.times, b.now())
	return Answer{}
}

func errcode(code int, text string) Answer {
	return Answer{Status: 200, Body: fmt.Sprintf(`{"errcode":%d,"errmsg":%q}`, code, text)}
}

func (b *Robot) dingTalk(r *http.Request, body []byte) Answer {
	q := r.URL.Query()
	ms, err := strconv.ParseInt(q.Get("timestamp"), 10, 64)
	age := b.now().Sub(time.UnixMilli(ms)).Abs()
	var m struct {
		MsgType  string
		Markdown struct{ Title, Text string }
		At       struct {
			AtMobiles, AtUserIds []string
			IsAtAll              bool
		}
	}
	switch {
	case b.now().Before(b.blocked):
		return errcode(130101, "send too fast, exceed 20 times per minute")
	case r.URL.Path != "/robot/send" || q.Get("access_token") != b.credential:
		return errcode(300005, "token is not exist")
	case err != nil || age > time.Hour:
		return errcode(310000, "invalid timestamp")
	case q.Get("sign") != hmacBase64(b.Secret, q.Get("timestamp")+"\n"+b.Secret):
		return errcode(310000, "sign not match")
	case len(body) > 20_000:
		return errcode(460101, "message too long, exceed 20000 bytes")
	case json.Unmarshal(body, &m) != nil || m.MsgType != "markdown" || m.Markdown.Title == "" ||
		m.Markdown.Text == "":
		return errcode(400101, "invalid message")
	case b.keyword != "" && !bytes.Contains(body, []byte(b.keyword)):
		return errcode(310000, "keywords not in content")
	case b.tooFast(b.perMin(20), time.Minute):
		b.blocked = b.now().Add(10 * time.Minute)
		return errcode(130101, "send too fast, exceed 20 times per minute")
	}
	for _, id := range append(m.At.AtMobiles, m.At.AtUserIds...) {
		if !strings.Contains(m.Markdown.Text, "@"+id) {
			return errcode(400102, "a mention is not in the text")
		}
	}
	return b.count()
}

func (b *Robot) weCom(r *http.Request, body []byte) Answer {
	var m struct {
		MsgType  string
		Markdown struct{ Content string }
		Text     struct {
			Content       string
			MentionedList []string `json:"mentioned_list"`
			Mobiles       []string `json:"mentioned_mobile_list"`
		}
	}
	switch {
	case r.URL.Path != "/cgi-bin/webhook/send" || r.URL.Query().Get("key") != b.credential:
		return errcode(93000, "invalid webhook url")
	case json.Unmarshal(body, &m) != nil:
		return errcode(40008, "invalid message type")
	case m.MsgType == "markdown" && (m.Markdown.Content == "" || len(m.Markdown.Content) > 4096),
		m.MsgType == "text" && (m.Text.Content == "" || len(m.Text.Content) > 2048):
		return errcode(40058, "content exceed max length")
	case m.MsgType != "markdown" && m.MsgType != "text":
		return errcode(40008, "invalid message type")
	case b.tooFast(b.perMin(20), time.Minute):
		return errcode(45009, "api freq out of limit")
	}
	return b.count()
}

func (b *Robot) feishu(r *http.Request, body []byte) Answer {
	refuse := func(code int, text string) Answer {
		return Answer{Status: 200, Body: fmt.Sprintf(`{"code":%d,"data":{},"msg":%q}`, code, text)}
	}
	var m struct {
		Timestamp, Sign string
		MsgType         string `json:"msg_type"`
		Card            struct {
			Header   struct{ Title struct{ Tag, Content string } }
			Elements []struct{ Tag, Content string }
		}
	}
	err := json.Unmarshal(body, &m)
	seconds, timeErr := strconv.ParseInt(m.Timestamp, 10, 64)
	age := b.now().Sub(time.Unix(seconds, 0)).Abs()
	switch {
	case r.URL.Path != "/open-apis/bot/v2/hook/"+b.credential:
		return refuse(19001, "param invalid: incoming webhook access token invalid")
	case err != nil || len(body) > 20_000:
		return refuse(9499, "Bad Request")
	case timeErr != nil || age > time.Hour || m.Sign != hmacBase64(m.Timestamp+"\n"+b.Secret, ""):
		return refuse(19021, "sign match fail or timestamp is not within one hour from current time")
	case m.MsgType != "interactive" || m.Card.Header.Title.Tag != "plain_text" || len(m.Card.Elements) == 0 ||
		m.Card.Elements[0].Tag != "markdown":
		return refuse(9499, "Bad Request")
	case b.keyword != "" && !bytes.Contains(body, []byte(b.keyword)):
		return refuse(19024, "Key Words Not Found")
	case b.tooFast(5, time.Second), b.tooFast(b.perMin(100), time.Minute):
		return refuse(11232, "frequency limited psm")
	}
	return b.count()
}

func (b *Robot) slack(r *http.Request, body []byte) Answer {
	var m struct{ Text string }
	span, most := time.Second, 1
	if b.perMinute > 0 {
		span, most = time.Minute, b.perMinute
	}
	switch {
	case !strings.HasPrefix(r.URL.Path, "/services/T0000/B0000/"):
		return Answer{Status: http.StatusNotFound, Body: "no_service"}
	case !strings.HasSuffix(r.URL.Path, "/"+b.credential):
		return Answer{Status: http.StatusForbidden, Body: "invalid_token"}
	case json.Unmarshal(body, &m) != nil || m.Text == "":
		return Answer{Status: http.StatusBadRequest, Body: "no_text"}
	case len(m.Text) > 40_000:
		return Answer{Status: http.StatusBadRequest, Body: "msg_too_long"}
	case b.tooFast(most, span):
		return Answer{Status: http.StatusTooManyRequests, Body: "rate_limited", RetryAfter: "1"}
	}
	return b.count()
}

func (b *Robot) teams(r *http.Request, body []byte) Answer {
	var m struct {
		Type        string
		Attachments []struct {
			ContentType string
			Content     struct {
				Type, Version string
				Body          []struct {
					Type    string
					Text    string
					Inlines []struct{ Type, Text string }
				}
			}
		}
	}
	bad := Answer{Status: http.StatusBadRequest, Body: `{"error":{"code":"InvalidRequestContent"}}`}
	switch {
	case r.URL.Query().Get("sig") != b.credential:
		return Answer{Status: http.StatusUnauthorized, Body: "DirectApiAuthorizationRequired"}
	case len(body) > 28_000:
		return Answer{Status: http.StatusRequestEntityTooLarge}
	case json.Unmarshal(body, &m) != nil || m.Type != "message" || len(m.Attachments) != 1:
		return bad
	case b.tooFast(b.perMin(60), time.Minute):
		return Answer{Status: http.StatusTooManyRequests, RetryAfter: "5"}
	}
	card := m.Attachments[0]
	if card.ContentType != "application/vnd.microsoft.card.adaptive" || card.Content.Type != "AdaptiveCard" ||
		card.Content.Version == "" || len(card.Content.Body) == 0 {
		return bad
	}
	for _, block := range card.Content.Body {
		isText := block.Type == "TextBlock" && block.Text != ""
		isRich := block.Type == "RichTextBlock" && len(block.Inlines) > 0 &&
			block.Inlines[0].Type == "TextRun"
		if !isText && !isRich {
			return bad
		}
	}
	return b.count()
}

func hmacBase64(key, text string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
