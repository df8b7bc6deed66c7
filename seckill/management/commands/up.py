"""The supervisor behind `make run`: picks the services, starts everything, stops everything."""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import connection

from config import embedded, embedded_redis, env, processes
from config.supervise import Child, Ended, Stopped, Supervisor, clear_stale
from seckill.management import static
from seckill.management.cli import FAILED, WRONG_USE, BaseCommand, Failed
from seckill.management.demo import is_foreign_shop
from seckill.management.migrations import is_migrated

READY_WITHIN = 60.0
REDIS_WITHIN = 20.0
PORT_WITHIN = 5.0


class Command(BaseCommand):
    help = (
        "Run the whole shop: embedded services for those that the environment doesn't name, "
        "migrations, a demo shop, web, workers and beat. Ctrl-C stops everything."
    )
    examples = ("", "--port 8080 --no-demo")

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, help="default: PORT, or 8000")
        parser.add_argument("--no-demo", action="store_true", help="don't make a demo shop")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["port"] is not None:
            os.environ["PORT"] = str(options["port"])
        plan = processes.read_plan()
        lock = embedded.take_lock()
        if lock is None:
            raise Failed(_already_running())
        with lock:
            self._run(plan, demo=not options["no_demo"])

    def _run(self, plan: processes.Plan, *, demo: bool) -> None:
        supervisor = Supervisor(output=sys.stderr, pids=embedded.var_dir() / "up.pids.json")
        with supervisor.listening():
            grace = PORT_WITHIN if clear_stale(supervisor.pids, supervisor.say) else 0.0
            try:
                shop = _Shop(supervisor, plan)
                shop.check_port(grace)
                shop.start(demo=demo)
                supervisor.watch()
            except Stopped:
                pass
            except (Ended, Failed) as error:
                # A Ctrl-C also kills a process that is just being started: that is no failure.
                if not supervisor.stopping:
                    raise Failed(str(error), code=getattr(error, "returncode", FAILED)) from error
            finally:
                supervisor.stop()
                embedded.state_file().unlink(missing_ok=True)


class _Shop:
    """One start of the shop, step by step."""

    def __init__(self, supervisor: Supervisor, plan: processes.Plan) -> None:
        self.supervisor = supervisor
        self.plan = plan

    def start(self, *, demo: bool) -> None:
        self._share_figures()
        self._choose_services()
        self._migrate()
        self._collect_static()
        self._start_processes()
        # Beside the processes that are starting, because it takes as long as they do.
        accounts = self._seed() if demo else {}
        self._wait_until_ready()
        self.supervisor.patience = None
        _print_ready(self.plan.base_url, accounts)

    def check_port(self, grace: float) -> None:
        """Processes of an `up` that was killed get `grace` seconds to leave the port."""
        deadline = time.monotonic() + grace
        while processes.port_in_use(self.plan.port):
            if time.monotonic() >= deadline:
                raise Failed(
                    f"Port {self.plan.port} is in use by another program. "
                    f"Choose another one: make run PORT={self.plan.port + 1}"
                )
            self.supervisor.tick()

    def _share_figures(self) -> None:
        """Let all processes count into one directory, emptied of what the last run counted."""
        if not settings.METRICS_DIR:
            folder = embedded.var_dir() / "metrics"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)

    def _choose_services(self) -> None:
        redis_url = ""
        if not env.is_set("REDIS_URL"):
            redis_url = self._start_redis()
        where = processes.in_words(settings.REDIS_URL) if not redis_url else "embedded"
        database = "embedded SQLite" if settings.EMBEDDED_DATABASE else "DATABASE_URL"
        self.supervisor.say(f"database: {database}, Redis: {where}, web: {self.plan.web_server}")
        embedded.write_state(
            {
                "pid": os.getpid(),
                "birth": embedded.birth(os.getpid()),
                "redis_url": redis_url,
                "base_url": self.plan.base_url,
                "database": embedded.database_mark(),
            }
        )

    def _start_redis(self) -> str:
        server = embedded_redis.prepare()
        log = f"see {server.config.with_name(embedded_redis.LOG)}"
        self.supervisor.start(Child("redis", server.command, last=True, log=log))
        if not self.supervisor.wait_until(server.answers, REDIS_WITHIN):
            raise Failed(f"The embedded Redis didn't answer within {REDIS_WITHIN:g} s: {log}")
        return server.url

    def _step(self, name: str, *arguments: str, stdout: Any = None) -> None:
        code = self.supervisor.run(name, processes.manage(*arguments), stdout=stdout)
        if code:
            raise Failed(
                f"`manage.py {arguments[0]}` failed; its lines above say why.",
                code=WRONG_USE if code == WRONG_USE else 1,
            )

    def _migrate(self) -> None:
        """A second start has nothing to migrate; asking is much faster than the command."""
        migrated = is_migrated()
        connection.close()  # This process has no more business with the database.
        if not migrated:
            self._step("migrate", "migrate", "--no-input", "-v", "0")

    def _collect_static(self) -> None:
        root = Path(settings.STATIC_ROOT)
        if not static.is_collected(root):
            self._step("static", "collectstatic", "--no-input", "-v", "0")
            static.note_collected(root)

    def _seed(self) -> dict[str, Any]:
        foreign = not settings.EMBEDDED_DATABASE and is_foreign_shop()
        connection.close()
        if foreign:
            self.supervisor.say("no demo shop: the database has products of its own")
            return {}
        with tempfile.TemporaryFile() as answer:
            self._step("seed", "seed_demo", "--json", stdout=answer)
            answer.seek(0)
            seeded: dict[str, Any] = json.loads(answer.read())
        return {name: seeded[name] for name in ("admin", "buyer")}

    def _start_processes(self) -> None:
        for name, command in processes.workers(self.plan).items():
            self.supervisor.start(Child(name, command))
        self.supervisor.start(Child("beat", processes.beat()))
        if self.plan.web_server == "granian":
            self.supervisor.start(Child("web", processes.granian(self.plan)))
        else:
            self._start_daphne()

    def _start_daphne(self) -> None:
        self.listener = processes.listen(self.plan.port)
        fd = self.listener.fileno()
        for number in range(1, self.plan.web_workers + 1):
            self.supervisor.start(Child(f"web{number}", processes.daphne(fd), fds=(fd,)))

    def _wait_until_ready(self) -> None:
        probe = _Probe(f"{self.plan.base_url}/readyz")
        if not self.supervisor.wait_until(probe.is_ready, READY_WITHIN):
            raise Failed(f"The shop isn't ready after {READY_WITHIN:g} s: {probe.answer}")


class _Probe:
    """Asks the shop whether it is ready, and remembers what it said last."""

    def __init__(self, url: str) -> None:
        host = next((host for host in settings.ALLOWED_HOSTS if "*" not in host), "localhost")
        self._request = urllib.request.Request(url, headers={"Host": host.lstrip(".")})
        # Without the environment's proxies, and following no redirect (to https).
        self._opener = urllib.request.OpenerDirector()
        self._opener.add_handler(urllib.request.HTTPHandler())
        self.answer = "no answer"

    def is_ready(self) -> bool:
        try:
            with self._opener.open(self._request, timeout=3) as response:
                self.answer = response.read(2000).decode(errors="replace").strip()
                return bool(response.status < 400)
        except OSError as error:
            self.answer = f"no answer ({error})"
            return False


def _already_running() -> str:
    state = embedded.read_state()
    where = f" at {state['base_url']} (process {state['pid']})" if state else ""
    return f"The shop of this checkout runs already{where}. Stop that one first: Ctrl-C there."


def _print_ready(url: str, accounts: dict[str, Any]) -> None:
    lines = [f"ready {url}"]
    for role, account in accounts.items():
        password = account["password"] or "(as you have set it)"
        lines.append(f"{role}: {account['username']} / {password}")
    with contextlib.suppress(OSError):
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
