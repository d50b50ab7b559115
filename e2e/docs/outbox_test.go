package docs

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/docpage"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// The programs of docs/guide/outbox-languages.md run as they stand there, on real databases. A program that
// fails leaves no row; one that succeeds leaves a row with the right bytes.

const languagesPage = "docs/guide/outbox-languages.md"

// The databases of the programs.
const (
	onPostgres = "postgres"
	onMariaDB  = "mysql"
)

// A payer is a program of the page, with the commands that prepare it and that pay the orders "$@".
type payer struct {
	file         string
	databases    []string
	prepare, run string
	// body is what its JSON library writes for the order ORDER.
	body string
}

const (
	compactBody = `{"order":"ORDER","paid":"100.00","shop":"\"茶\" 😀"}`
	spacedBody  = `{"order": "ORDER", "paid": "100.00", "shop": "\"茶\" 😀"}`
	pythonBody  = `{"order": "ORDER", "paid": "100.00", "shop": "\"\u8336\" \ud83d\ude00"}`
	phpBody     = `{"order":"ORDER","paid":"100.00","shop":"\"\u8336\" \ud83d\ude00"}`
	// goRun runs a program with the modules of e2e/outbox, which has the drivers.
	goRun = `FILE="$PWD/%s"; cd "$TRIAL"; exec go run -tags nomsgpack "$FILE" "$@"`
)

var payers = []payer{
	{"pay_pgx.go", []string{onPostgres}, "", fmt.Sprintf(goRun, "pay_pgx.go"), compactBody},
	{"pay_mysql.go", []string{onMariaDB}, "", fmt.Sprintf(goRun, "pay_mysql.go"), compactBody},
	{"Pay.java", []string{onPostgres, onMariaDB}, "javac -encoding UTF-8 Pay.java",
		`exec java -cp ".:$JARS" Pay "$@"`, spacedBody},
	{"Payments.java", []string{onPostgres, onMariaDB},
		`javac -encoding UTF-8 -cp "$JARS" Payments.java Main.java`, `exec java -cp ".:$JARS" Main "$@"`,
		spacedBody},
	{"pay_psycopg.py", []string{onPostgres}, "", `exec python3 pay_psycopg.py "$@"`, pythonBody},
	{"pay_pymysql.py", []string{onMariaDB}, "", `exec python3 pay_pymysql.py "$@"`, pythonBody},
	{"pay-pg.mjs", []string{onPostgres}, "", `exec node pay-pg.mjs "$@"`, compactBody},
	{"pay-mysql.mjs", []string{onMariaDB}, "", `exec node pay-mysql.mjs "$@"`, compactBody},
	{"pay.php", []string{onPostgres, onMariaDB}, "", `exec php pay.php "$@"`, phpBody},
}

// A shopDatabase is the database of the orders and the outbox table.
type shopDatabase struct {
	*sql.DB
	kind, address string
}

func newShopDatabase(t *testing.T, kind string) shopDatabase {
	var address string
	if kind == onPostgres {
		address = testserver.SharedPostgres(t).Database(t)
	} else {
		address = testserver.SharedMariaDB(t).Database(t)
	}
	s := shopDatabase{testserver.DB(t, address), kind, address}
	ddl := harness.Command(t, 10*time.Second, nil, "relay", "ddl", "--dialect", kind)
	if ddl.Code != 0 {
		t.Fatalf("relay ddl: %s", ddl.Stderr)
	}
	s.exec(t, ddl.Stdout)
	for _, b := range blocksOf(t, languagesPage) {
		if b.Name == "orders.sql" {
			s.exec(t, b.Text)
		}
	}
	return s
}

func (s shopDatabase) exec(t *testing.T, query string) {
	t.Helper()
	_, err := s.ExecContext(t.Context(), query)
	harness.Check(t, err)
}

// environment are the variables of the programs.
func (s shopDatabase) environment(t *testing.T) []string {
	u, err := url.Parse(s.address)
	harness.Check(t, err)
	password, _ := u.User.Password()
	host, port, name := u.Hostname(), u.Port(), strings.TrimPrefix(u.Path, "/")
	user, scheme, pdo := u.User.Username(), "postgresql", "pgsql:"
	charset := ""
	if s.kind == onMariaDB {
		scheme, pdo, charset = "mariadb", "mysql:", ";charset=utf8mb4"
	}
	login := url.Values{"user": {user}, "password": {password}}
	return []string{
		"DATABASE_URL=" + s.address,
		fmt.Sprintf("MYSQL_DSN=%s:%s@tcp(%s)/%s", user, password, u.Host, name),
		fmt.Sprintf("JDBC_URL=jdbc:%s://%s/%s?%s", scheme, u.Host, name, login.Encode()),
		fmt.Sprintf("PDO_DSN=%shost=%s;port=%s;dbname=%s%s", pdo, host, port, name, charset),
		"DB_HOST=" + host, "DB_PORT=" + port, "DB_USER=" + user, "DB_PASSWORD=" + password, "DB_NAME=" + name,
	}
}

// An outboxRow is a row of the outbox table.
type outboxRow struct {
	id, kind, request string
	body              []byte
}

// rows returns the rows of an order.
func (s shopDatabase) rows(t *testing.T, order string) (all []outboxRow) {
	t.Helper()
	found, err := s.QueryContext(t.Context(),
		"SELECT id, kind, request, body FROM dispatcher_outbox ORDER BY seq")
	harness.Check(t, err)
	defer found.Close()
	for found.Next() {
		var r outboxRow
		harness.Check(t, found.Scan(&r.id, &r.kind, &r.request, &r.body))
		if strings.HasPrefix(r.id, order+" ") {
			all = append(all, r)
		}
	}
	harness.Check(t, found.Err())
	return all
}

// state returns the state of an order.
func (s shopDatabase) state(t *testing.T, order string) (state string) {
	t.Helper()
	query := "SELECT state FROM orders WHERE order_no = '" + order + "'"
	harness.Check(t, s.QueryRowContext(t.Context(), query).Scan(&state))
	return state
}

// modulesOfNode returns the directory that has modules which apt or npm installed.
func modulesOfNode(t *testing.T) string {
	candidates := []string{"/usr/share/nodejs", "/usr/lib/nodejs"}
	if out, err := exec.Command("npm", "root", "--global").Output(); err == nil {
		candidates = append(candidates, strings.TrimSpace(string(out)))
	}
	i := slices.IndexFunc(candidates, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "pg"))
		_, err2 := os.Stat(filepath.Join(dir, "mysql"))
		return errors.Join(err, err2) == nil
	})
	if i < 0 {
		t.Fatalf("pg and mysql are in none of %q: run tools/setup.sh full", candidates)
	}
	return candidates[i]
}

// jars are the drivers and Spring, as Debian installs them.
var jars = []string{
	"postgresql", "mariadb-java-client", "spring3-aop", "spring3-beans", "spring3-context", "spring3-core",
	"spring3-expression", "spring3-jdbc", "spring3-transaction", "commons-logging", "aopalliance",
}

// newWorkshop returns a directory with the programs of the page, and the variables that they need to run.
func newWorkshop(t *testing.T) (dir string, env []string) {
	dir = t.TempDir()
	for _, b := range blocksOf(t, languagesPage) {
		if b.Kind == docpage.File {
			harness.Check(t, os.WriteFile(filepath.Join(dir, b.Name), []byte(b.Text+"\n"), 0o644))
		}
	}
	main, err := os.ReadFile("testdata/Main.java")
	harness.Check(t, errors.Join(err, os.WriteFile(filepath.Join(dir, "Main.java"), main, 0o644)))
	modules := modulesOfNode(t)
	harness.Check(t, os.Mkdir(filepath.Join(dir, "node_modules"), 0o755))
	for _, name := range []string{"pg", "mysql"} {
		harness.Check(t, os.Symlink(filepath.Join(modules, name), filepath.Join(dir, "node_modules", name)))
	}
	trial, err := filepath.Abs(filepath.Join(root, "e2e/outbox"))
	harness.Check(t, err)
	var path []string
	for _, name := range jars {
		path = append(path, "/usr/share/java/"+name+".jar")
	}
	return dir, []string{
		// The libraries of Python belong to the system's own Python.
		"PATH=/usr/bin" + string(os.PathListSeparator) + os.Getenv("PATH"),
		"TRIAL=" + trial, "JARS=" + strings.Join(path, ":"), "NODE_PATH=" + modules, "LC_ALL=C.UTF-8",
	}
}

// paid pays orders with a program, and reports whether the program ended without an error.
func (p payer) paid(t *testing.T, dir string, env []string, orders ...string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), blockLimit(t))
	defer cancel()
	argv := append([]string{"-ec", p.run, p.file}, orders...)
	cmd := harness.Prepared(t, exec.CommandContext(ctx, "bash", argv...), env...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", p.file, err)
	}
	t.Logf("%s %q: %v\n%s", p.file, orders, err, out)
	return err == nil
}

// trial runs a program on a database: once it commits, once it fails. It returns the committed order.
func (p payer) trial(t *testing.T, dir string, env []string, s shopDatabase) (order string) {
	t.Helper()
	order = p.file + "-" + s.kind + "-1"
	rolledBack := strings.TrimSuffix(order, "1") + "2"
	s.exec(t, fmt.Sprintf("INSERT INTO orders VALUES ('%s', 'open'), ('%s', 'open')", order, rolledBack))
	env = append(env, s.environment(t)...)
	if p.paid(t, dir, env, rolledBack, "missing") {
		t.Errorf("%s paid an order that does not exist", p.file)
	}
	if got, state := s.rows(t, rolledBack), s.state(t, rolledBack); len(got) > 0 || state != "open" {
		t.Errorf("after the rollback the order is %s, and the outbox has %q", state, got)
	}
	if !p.paid(t, dir, env, order) {
		t.Fatalf("%s failed", p.file)
	}
	got := s.rows(t, order)
	if state := s.state(t, order); len(got) != 1 || state != "paid" {
		t.Fatalf("after the commit the order is %s, and the outbox has %q", state, got)
	}
	want := strings.ReplaceAll(p.body, "ORDER", order)
	if got := got[0]; got.id != order+" paid" || got.kind != "callback" || string(got.body) != want {
		t.Errorf("the row is %q %q with the body\n%q, want\n%q", got.id, got.kind, got.body, want)
	}
	wanted := map[string]any{
		"endpoint": "m-1001", "topic": "payment.succeeded", "ref": order, "content_type": "application/json",
	}
	var request map[string]any
	harness.Check(t, json.Unmarshal([]byte(got[0].request), &request))
	if !reflect.DeepEqual(request, wanted) {
		t.Errorf("the request is %v, want %v", request, wanted)
	}
	return order
}

func TestOutboxPrograms(t *testing.T) {
	t.Parallel()
	programs := 0
	for _, b := range blocksOf(t, languagesPage) {
		if b.Kind == docpage.File && b.Name != "orders.sql" {
			programs++
		}
	}
	if programs != len(payers) {
		t.Errorf("the page has %d programs, want %d", programs, len(payers))
	}
	dir, env := newWorkshop(t)
	databases := map[string]shopDatabase{}
	for _, kind := range []string{onPostgres, onMariaDB} {
		databases[kind] = newShopDatabase(t, kind)
	}
	sent := map[string]string{} // the body of each order
	for _, p := range payers {
		if p.prepare != "" {
			s := newShell(t, dir, env...)
			s.run("export " + env[2] + "\n" + p.prepare)
		}
		for _, kind := range p.databases {
			t.Run(p.file+" on "+kind, func(t *testing.T) {
				order := p.trial(t, dir, env, databases[kind])
				sent[order] = strings.ReplaceAll(p.body, "ORDER", order)
			})
		}
	}
	if !t.Failed() {
		relayed(t, databases, sent)
	}
}

// relayed runs a relay in a process of its own, and checks that each row arrives with its bytes.
func relayed(t *testing.T, databases map[string]shopDatabase, sent map[string]string) {
	t.Helper()
	b := harness.NewBackend(t, harness.SQLiteEmbedded)
	b.SkipReconciliation("rows of outbox tables are not counted")
	receiver := harness.NewReceiver(t, harness.ScriptOf(t, "testdata/kitchen.txt"))
	p := harness.Serve(t, harness.Launch{On: b})
	p.Post("/v1/endpoints", harness.Submission{"url": receiver.URL, "external_id": "m-1001"}, nil)
	scopes := []client.Scope{client.ScopeSend}
	key, err := p.CreateKey(t.Context(), client.KeyRequest{Name: "relay", Scopes: scopes})
	harness.Check(t, err)
	var sources []map[string]string
	for kind, s := range databases {
		sources = append(sources, map[string]string{"name": "pay-" + kind, "dsn": s.address})
	}
	setting, err := json.Marshal(sources)
	harness.Check(t, err)
	openWindow(t, t.TempDir(), "exec "+harness.Binary(t)+" relay",
		"DISPATCHER_SERVER="+p.Base, "DISPATCHER_KEY="+key.Text, "DISPATCHER_RELAY="+string(setting),
		"DISPATCHER_OPS_LISTEN=127.0.0.1:"+testserver.FreePort(t))
	harness.Eventually(t, time.Minute, "each row arrives", func() error {
		got := map[string]string{}
		for _, a := range receiver.All() {
			var body struct{ Order string }
			harness.Check(t, json.Unmarshal(a.Body, &body))
			got[body.Order] = string(a.Body)
		}
		if !maps.Equal(got, sent) {
			return fmt.Errorf("got %q, want %q", got, sent)
		}
		return nil
	})
	for kind, s := range databases {
		harness.Eventually(t, time.Minute, "the rows are removed", func() error {
			var n int
			err := s.QueryRowContext(t.Context(), "SELECT count(*) FROM dispatcher_outbox").Scan(&n)
			if err == nil && n > 0 {
				err = fmt.Errorf("%s has %d rows", kind, n)
			}
			return err
		})
	}
}
