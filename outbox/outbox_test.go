package outbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/outbox"
)

// row returns the columns request and body of a callback.
func row(t *testing.T, c outbox.Callback) (request string, body any) {
	t.Helper()
	_, args, _, err := outbox.Statement(outbox.Postgres, "", c)
	if err != nil {
		t.Fatal(err)
	}
	return args[2].(string), args[3]
}

// valid is the smallest callback.
func valid() outbox.Callback {
	return outbox.Callback{ID: "a", Endpoint: "m-1", Body: []byte("{}")}
}

func TestStatement(t *testing.T) {
	const columns = " (id, kind, request, body) VALUES "
	for _, c := range []struct {
		dialect     outbox.Dialect
		table, want string
	}{
		{outbox.Postgres, "", `INSERT INTO "dispatcher_outbox"` + columns + "($1, $2, $3, $4)"},
		{outbox.MySQL, "", "INSERT INTO `dispatcher_outbox`" + columns + "(?, ?, ?, ?)"},
		{outbox.Postgres, "pay.Out", `INSERT INTO "pay"."Out"` + columns + "($1, $2, $3, $4)"},
		{outbox.MySQL, "pay.out", "INSERT INTO `pay`.`out`" + columns + "(?, ?, ?, ?)"},
	} {
		got, args, id, err := outbox.Statement(c.dialect, c.table, valid())
		if err != nil || got != c.want || id != "a" || len(args) != 4 {
			t.Errorf("%s %q: %q, %d arguments, id %q, %v; want %q", c.dialect, c.table, got, len(args), id,
				err, c.want)
		}
	}
}

func TestEveryFieldIsInTheRequest(t *testing.T) {
	version := 7
	request, body := row(t, outbox.Callback{
		ID: "order-1001 paid", URL: "https://shop.example/notify?a=1&b=<2>", Endpoint: "m-1001",
		Topic: "payment.succeeded", Ref: "order-1001", LockKey: "order-1001", Order: "strict", Lane: "slow",
		Policy: "payment", Success: "body-success", ContentType: "text/plain", Delay: 90 * time.Second,
		Headers: map[string]string{"X-Shop": "茶"}, Labels: map[string]string{"channel": "😀", "none": ""},
		Body: []byte{0, 0xff, '<', '\\'},
		More: map[string]any{
			"supersede": true, "version": version, "expires_in": 36 * time.Hour,
			"due_at": nil, "signer": map[string]any{"name": "none"},
		},
	})
	const want = `{"content_type":"text/plain","delay":"1m30s","due_at":null,"endpoint":"m-1001",` +
		`"expires_in":"36h0m0s","headers":{"X-Shop":"茶"},"labels":{"channel":"😀","none":""},"lane":"slow",` +
		`"lock_key":"order-1001","order":"strict","policy":"payment","ref":"order-1001",` +
		`"signer":{"name":"none"},"success":"body-success","supersede":true,"topic":"payment.succeeded",` +
		`"url":"https://shop.example/notify?a=1&b=<2>","version":7}`
	if request != want {
		t.Errorf("the request is\n%s\nwant\n%s", request, want)
	}
	if got, ok := body.([]byte); !ok || !bytes.Equal(got, []byte{0, 0xff, '<', '\\'}) {
		t.Errorf("the body is %v", body)
	}
}

// TestNoFieldIsForgotten: a new field of the struct must reach the request or another column.
func TestNoFieldIsForgotten(t *testing.T) {
	columns := map[string]bool{"ID": true, "Body": true, "Event": true, "More": true}
	of := reflect.TypeOf(outbox.Callback{})
	for i := 0; i < of.NumField(); i++ {
		c := valid()
		field := of.Field(i)
		switch v := reflect.ValueOf(&c).Elem().Field(i); {
		case columns[field.Name]:
			continue
		case field.Name == "URL":
			v.SetString("https://shop.example")
		case field.Name == "Order":
			c.LockKey, c.Order = "k", "strict"
		case v.Kind() == reflect.String:
			v.SetString("some text")
		case v.Kind() == reflect.Map:
			v.Set(reflect.ValueOf(map[string]string{"a": "b"}))
		default:
			c.Delay = time.Second
		}
		request, _ := row(t, c)
		base, _ := row(t, valid())
		if request == base {
			t.Errorf("%s is not in the request %s", field.Name, request)
		}
	}
}

func TestContentType(t *testing.T) {
	for body, want := range map[string]string{
		` {"paid": 1}`: "application/json", `"text"`: "application/json",
	} {
		c := valid()
		c.Body = []byte(body)
		if request, _ := row(t, c); !strings.Contains(request, `"content_type":"`+want+`"`) {
			t.Errorf("%s: %s", body, request)
		}
	}
	c := valid()
	c.Body, c.More = []byte("a=1"), map[string]any{"content_type": "application/x-www-form-urlencoded"}
	if request, _ := row(t, c); strings.Count(request, "content_type") != 1 {
		t.Error(request)
	}
}

func TestWithoutBody(t *testing.T) {
	c := outbox.Callback{ID: "a", URL: "http://a.example", More: map[string]any{"method": "get"}}
	if request, body := row(t, c); body != nil || strings.Contains(request, "content_type") {
		t.Errorf("%s, body %v", request, body)
	}
	c.Body, c.ContentType = []byte{}, "text/plain"
	if _, body := row(t, c); body == nil {
		t.Error("an empty body became none")
	}
}

func TestDelayHasWholeMilliseconds(t *testing.T) {
	for delay, want := range map[time.Duration]string{
		time.Nanosecond: "1ms", 1500 * time.Microsecond: "2ms", time.Millisecond: "1ms",
		outbox.MaxDelay: "9600h0m0s", 15 * time.Minute: "15m0s",
	} {
		c := valid()
		c.Delay = delay
		if request, _ := row(t, c); !strings.Contains(request, `"delay":"`+want+`"`) {
			t.Errorf("%s: %s, want %s", delay, request, want)
		}
	}
}

func TestRandomIDs(t *testing.T) {
	pattern := regexp.MustCompile(`^[0-9A-HJKMNP-TV-Z]{26}$`)
	seen := map[string]bool{}
	for i := 0; i < 1000; i++ {
		c := valid()
		c.ID = ""
		_, args, id, err := outbox.Statement(outbox.MySQL, "", c)
		if err != nil || args[0] != id || seen[id] || !pattern.MatchString(id) {
			t.Fatalf("id %q, argument %v, %v", id, args[0], err)
		}
		seen[id] = true
	}
}

func TestEvent(t *testing.T) {
	_, args, _, err := outbox.Statement(outbox.MySQL, "", outbox.Callback{
		ID: "e", Event: true, Topic: "order.created", Body: []byte(`{}`),
	})
	if err != nil || args[1] != "event" {
		t.Fatalf("%v, %v", args, err)
	}
	if text, ok := args[2].([]byte); !ok || !json.Valid(text) {
		t.Errorf("MySQL gets %T %s", args[2], args[2])
	}
}

// A change makes a valid callback invalid.
type change func(*outbox.Callback)

func more(name string, value any) change {
	return func(c *outbox.Callback) { c.More = map[string]any{name: value} }
}

func label(name, value string) change {
	return func(c *outbox.Callback) { c.Labels = map[string]string{name: value} }
}

func header(name, value string) change {
	return func(c *outbox.Callback) { c.Headers = map[string]string{name: value} }
}

func TestInvalidCallbacks(t *testing.T) {
	long := strings.Repeat("茶", 257)
	for _, c := range []struct {
		want   string
		change change
	}{
		{"id: is longer than 128 characters", func(c *outbox.Callback) { c.ID = strings.Repeat("茶", 129) }},
		{"id: has a control character", func(c *outbox.Callback) { c.ID = "a\nb" }},
		{"id: is not valid UTF-8", func(c *outbox.Callback) { c.ID = "a\xff" }},
		{"url: is empty, and so is endpoint", func(c *outbox.Callback) { c.Endpoint = "" }},
		{"url: must be an http or https URL", func(c *outbox.Callback) { c.URL = "ftp://a" }},
		{"url: must be an http or https URL", func(c *outbox.Callback) { c.URL = "/notify" }},
		{"topic: is longer than 256", func(c *outbox.Callback) { c.Topic = long }},
		{"ref: is longer than 256", func(c *outbox.Callback) { c.Ref = long }},
		{"lock_key: has a control", func(c *outbox.Callback) { c.LockKey = "a\x00" }},
		{"lane: is longer than 128", func(c *outbox.Callback) { c.Lane = long[:129*3] }},
		{`order: must be "strict"`, func(c *outbox.Callback) { c.Order, c.LockKey = "fifo", "k" }},
		{"order: requires a lock_key", func(c *outbox.Callback) { c.Order = "strict" }},
		{"delay: is -1s; it must be", func(c *outbox.Callback) { c.Delay = -time.Second }},
		{"delay: is ", func(c *outbox.Callback) { c.Delay = outbox.MaxDelay + 1 }},
		{"delay: and due_at are both set", func(c *outbox.Callback) {
			c.Delay, c.More = time.Second, map[string]any{"due_at": time.Now()}
		}},
		{"body: is nil; only the methods GET", func(c *outbox.Callback) { c.Body = nil }},
		{"body: is 262145 bytes; at most 262144", func(c *outbox.Callback) {
			c.Body, c.ContentType = make([]byte, outbox.MaxBody+1), "text/plain"
		}},
		{"content_type: is empty, and the body is no", func(c *outbox.Callback) { c.Body = []byte("a=1") }},
		{"content_type: is empty, and the body is no", func(c *outbox.Callback) { c.Body = []byte{} }},
		{"content_type: requires a body", func(c *outbox.Callback) {
			c.Body, c.ContentType, c.More = nil, "text/plain", map[string]any{"method": "GET"}
		}},
		{"labels: has 21 labels", func(c *outbox.Callback) {
			c.Labels = map[string]string{}
			for r := 'a'; r < 'a'+21; r++ {
				c.Labels[string(r)] = "x"
			}
		}},
		{"labels: is longer than 64", label(long[:65*3], "x")},
		{"labels: is longer than 256", label("a", long)},
		{"labels: is empty", label("", "x")},
		{"headers: is empty", header("", "x")},
		{"headers: has a control", header("A", "b\r\nC: d")},
		{"headers: is longer than 128", header(long, "x")},
		{`more: has "idempotency_key"; use ID`, more("idempotency_key", "a")},
		{`more: has "payload"; use Body`, more("payload", 1)},
		{`more: has "body"; use Body`, more("body", "a")},
		{`more: has "body_base64"; use Body`, more("body_base64", "YQ==")},
		{`more: has "endpoint", which is also set`, more("endpoint", "m-2")},
		{"more: is empty", more("", 1)},
		{"more: json: unsupported", more("x", make(chan int))},
		{"more: json: unsupported", more("x", math.NaN())},
		{"supersede: requires ref, topic and version", more("supersede", true)},
		{"request: is ", more("context", strings.Repeat("a", outbox.MaxRequest))},
		{"topic: is required by an event", func(c *outbox.Callback) { c.Event, c.Endpoint = true, "" }},
		{"endpoint: is not allowed with an event", func(c *outbox.Callback) { c.Event, c.Topic = true, "a" }},
		{"signer: is not allowed with an event", func(c *outbox.Callback) {
			c.Event, c.Topic, c.Endpoint, c.More = true, "a", "", map[string]any{"signer": "none"}
		}},
	} {
		callback := valid()
		c.change(&callback)
		query, args, id, err := outbox.Statement(outbox.Postgres, "", callback)
		if !errors.Is(err, outbox.ErrInvalid) || !strings.HasPrefix(err.Error(), "outbox: invalid "+c.want) {
			t.Errorf("got %v, want outbox: invalid %s", err, c.want)
		}
		if query != "" || args != nil || id != "" {
			t.Errorf("%s: got the statement %q", c.want, query)
		}
	}
}

func TestLongestValuesAreValid(t *testing.T) {
	text := strings.Repeat("茶", 256)
	row(t, outbox.Callback{
		ID: text[:128*3], Endpoint: text, Topic: text, Ref: text, LockKey: text, Lane: text[:128*3],
		Labels: map[string]string{text[:64*3]: text}, Delay: outbox.MaxDelay,
		Body: []byte(`"` + strings.Repeat("a", outbox.MaxBody-2) + `"`),
	})
}

func TestInvalidTables(t *testing.T) {
	for table, dialect := range map[string]outbox.Dialect{
		".": outbox.MySQL, "a.": outbox.Postgres, "a.b.c": outbox.Postgres, "a\x00": outbox.MySQL,
		strings.Repeat("a", 55): outbox.Postgres, "a\xff": outbox.MySQL, "": "", "outbox": "oracle",
		`a"b`: outbox.Postgres, "a`b": outbox.MySQL, "1a": outbox.MySQL, "a b": outbox.MySQL,
		"a\n": outbox.MySQL,
	} {
		if _, _, _, err := outbox.Statement(dialect, table, valid()); !errors.Is(err, outbox.ErrInvalid) {
			t.Errorf("%q, table %q: %v", dialect, table, err)
		}
	}
}

// recorder is a transaction that records statements, and fails with err.
type recorder struct {
	queries []string
	args    []any
	err     error
}

func (r *recorder) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	r.queries, r.args = append(r.queries, query), args
	return nil, r.err
}

// A pgxRecorder has the method of pgx, with a result of any type.
type pgxRecorder struct{ recorder }

type tag struct{}

func (r *pgxRecorder) Exec(ctx context.Context, query string, args ...any) (tag, error) {
	_, err := r.ExecContext(ctx, query, args...)
	return tag{}, err
}

func TestInsert(t *testing.T) {
	ctx := context.Background()
	lost := errors.New("connection lost")
	for _, c := range []struct {
		name string
		call func(*pgxRecorder, outbox.Callback) (string, error)
	}{
		{"Insert", func(r *pgxRecorder, c outbox.Callback) (string, error) {
			return outbox.Insert(ctx, &r.recorder, outbox.Postgres, c)
		}},
		{"InsertPgx", func(r *pgxRecorder, c outbox.Callback) (string, error) {
			return outbox.InsertPgx(ctx, r, c)
		}},
	} {
		r := &pgxRecorder{}
		id, err := c.call(r, valid())
		if err != nil || id != "a" || len(r.queries) != 1 || len(r.args) != 4 {
			t.Errorf("%s: id %q, %v, statements %q", c.name, id, err, r.queries)
		}
		r = &pgxRecorder{recorder{err: lost}}
		id, err = c.call(r, valid())
		if id != "" || !errors.Is(err, lost) || errors.Is(err, outbox.ErrInvalid) ||
			err.Error() != `outbox: insert "a": connection lost` || len(r.queries) != 1 {
			t.Errorf("%s, lost: id %q, %v, statements %q", c.name, id, err, r.queries)
		}
		r = &pgxRecorder{}
		_, err = c.call(r, outbox.Callback{})
		if !errors.Is(err, outbox.ErrInvalid) || len(r.queries) != 0 {
			t.Errorf("%s, invalid: %v, statements %q", c.name, err, r.queries)
		}
	}
}

func TestInsertNeedsATransaction(t *testing.T) {
	ctx := context.Background()
	for _, tx := range []outbox.Execer{nil, new(sql.DB)} {
		if _, err := outbox.Insert(ctx, tx, outbox.MySQL, valid()); !errors.Is(err, outbox.ErrInvalid) {
			t.Errorf("%T: %v", tx, err)
		}
	}
	var none interface {
		Exec(context.Context, string, ...any) (tag, error)
	}
	if _, err := outbox.InsertPgx(ctx, none, valid()); !errors.Is(err, outbox.ErrInvalid) {
		t.Errorf("nil: %v", err)
	}
}

// TestEqualCallbacksGiveEqualRows: an ID that is repeated with other bytes is refused.
func TestEqualCallbacksGiveEqualRows(t *testing.T) {
	make := func() outbox.Callback {
		c := valid()
		c.Labels, c.More = map[string]string{}, map[string]any{"context": map[string]any{}}
		for r := 'a'; r < 'a'+20; r++ {
			c.Labels[string(r)] = "x"
			c.More["context"].(map[string]any)[string(r)] = 1
		}
		return c
	}
	first, _ := row(t, make())
	for i := 0; i < 20; i++ {
		if again, _ := row(t, make()); again != first {
			t.Fatalf("%s\n%s", first, again)
		}
	}
}
