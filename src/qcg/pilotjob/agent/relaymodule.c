/* The Python module of the relay. `_relay.pyi` documents its functions. */

#define _GNU_SOURCE
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "relay.h"

/* Functions that may wait for a start release the interpreter lock. */

static PyObject *py_open(PyObject *Py_UNUSED(module), PyObject *arguments) {
    int wakeup, null, memory_flags, highest;
    unsigned long long open_files;
    if (!PyArg_ParseTuple(arguments, "iiiiK:open", &wakeup, &null, &memory_flags, &highest, &open_files))
        return NULL;
    errno = relay_open(wakeup, null, (unsigned)memory_flags, highest, open_files);
    if (errno)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static void free_events(Event *events) {
    while (events) {
        Event *event = events;
        events = events->next;
        free(event);
    }
}

static PyObject *py_close(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    Py_BEGIN_ALLOW_THREADS
    relay_close();
    free_events(relay_take());
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_enter(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    Py_BEGIN_ALLOW_THREADS
    relay_enter();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_enter_within(PyObject *Py_UNUSED(module), PyObject *arguments) {
    double seconds;
    if (!PyArg_ParseTuple(arguments, "d:enter_within", &seconds))
        return NULL;
    bool done;
    Py_BEGIN_ALLOW_THREADS
    done = relay_enter_within(seconds);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(done);
}

static PyObject *py_leave(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    relay_leave();
    Py_RETURN_NONE;
}

/* Copies strings one after another into one block of memory. */
typedef struct {
    char *at;
} StringBlock;

static char *copy_string(StringBlock *block, const char *text, size_t length) {
    char *place = block->at;
    memcpy(place, text, length);
    place[length] = '\0';
    block->at += length + 1;
    return place;
}

static Py_ssize_t size_of_strings(PyObject *list) {
    Py_ssize_t size = 0, count = PyList_Size(list);
    for (Py_ssize_t index = 0; index < count; index++) {
        char *text;
        if (PyBytes_AsStringAndSize(PyList_GetItem(list, index), &text, NULL) < 0)
            return -1; /* also for a zero byte in the string */
        size += strlen(text) + 1 + sizeof(char *);
    }
    return size + (Py_ssize_t)sizeof(char *);
}

static char **copy_strings(StringBlock *block, char ***pointers, PyObject *list) {
    char **first = *pointers;
    Py_ssize_t count = PyList_Size(list);
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *item = PyList_GetItem(list, index);
        *(*pointers)++ = copy_string(block, PyBytes_AsString(item), PyBytes_Size(item));
    }
    *(*pointers)++ = NULL;
    return first;
}

static bool read_cpus(PyObject *cores, Offer *offer) {
    CPU_ZERO(&offer->cpus);
    offer->bound = cores != Py_None;
    for (Py_ssize_t index = 0; offer->bound && index < PyTuple_Size(cores); index++) {
        long core = PyLong_AsLong(PyTuple_GetItem(cores, index));
        if (core < 0 || core >= CPU_SETSIZE) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "there is no core %ld", core);
            return false;
        }
        CPU_SET(core, &offer->cpus);
    }
    return !PyErr_Occurred();
}

static Offer *new_offer(PyObject *given) {
    char *id, *line, *program, *wd, *out = NULL, *err = NULL;
    PyObject *argv, *environment, *out_or_none, *err_or_none, *cores;
    int captured;
    if (!PyArg_ParseTuple(given, "yyyO!O!yOOOp", &id, &line, &program, &PyList_Type, &argv, &PyList_Type,
                          &environment, &wd, &out_or_none, &err_or_none, &cores, &captured))
        return NULL;
    if (out_or_none != Py_None && PyBytes_AsStringAndSize(out_or_none, &out, NULL) < 0)
        return NULL;
    if (err_or_none != Py_None && PyBytes_AsStringAndSize(err_or_none, &err, NULL) < 0)
        return NULL;
    const char *single[] = {id, line, program, wd, out, err};
    Py_ssize_t size = sizeof(Offer), argv_size = size_of_strings(argv), environment_size = size_of_strings(environment);
    if (argv_size < 0 || environment_size < 0)
        return NULL;
    size += argv_size + environment_size;
    for (size_t index = 0; index < sizeof single / sizeof *single; index++)
        size += single[index] ? strlen(single[index]) + 1 : 0;
    Offer *offer = malloc(size);
    if (!offer) {
        PyErr_NoMemory();
        return NULL;
    }
    offer->next = NULL;
    offer->captured = captured;
    if (!read_cpus(cores, offer)) {
        free(offer);
        return NULL;
    }
    /* First all pointers, which have to be aligned, then all strings. */
    char **pointers = (char **)(offer + 1);
    StringBlock block = {(char *)(pointers + PyList_Size(argv) + PyList_Size(environment) + 2)};
    offer->argv = copy_strings(&block, &pointers, argv);
    offer->environment = copy_strings(&block, &pointers, environment);
    offer->id = copy_string(&block, id, strlen(id));
    offer->line = copy_string(&block, line, strlen(line));
    offer->program = copy_string(&block, program, strlen(program));
    offer->wd = copy_string(&block, wd, strlen(wd));
    offer->out = out ? copy_string(&block, out, strlen(out)) : NULL;
    offer->err = err ? copy_string(&block, err, strlen(err)) : NULL;
    return offer;
}

/* Convert a list of offers. Returns false with an exception set. */
static bool read_offers(PyObject *given, Offer **first) {
    *first = NULL;
    Offer **end = first;
    for (Py_ssize_t index = 0; index < PyList_Size(given); index++) {
        *end = new_offer(PyList_GetItem(given, index));
        if (!*end) {
            free_offers(*first);
            return false;
        }
        end = &(*end)->next;
    }
    return true;
}

static PyObject *py_watch(PyObject *Py_UNUSED(module), PyObject *arguments) {
    unsigned long long lane;
    int pid, ledger;
    const char *id;
    double started;
    Output output;
    PyObject *given;
    Offer *offers;
    if (!PyArg_ParseTuple(arguments, "KiydiiiO!:watch", &lane, &pid, &id, &started, &output.out, &output.err, &ledger,
                          &PyList_Type, &given))
        return NULL;
    if (!read_offers(given, &offers))
        return NULL;
    bool done;
    Py_BEGIN_ALLOW_THREADS
    done = relay_watch(lane, pid, id, started, output, ledger, offers);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(done);
}

static PyObject *py_offer(PyObject *Py_UNUSED(module), PyObject *arguments) {
    unsigned long long lane;
    int ledger;
    PyObject *given;
    Offer *offers;
    if (!PyArg_ParseTuple(arguments, "KiO!:offer", &lane, &ledger, &PyList_Type, &given))
        return NULL;
    if (!read_offers(given, &offers))
        return NULL;
    return PyBool_FromLong(relay_offer(lane, ledger, offers));
}

static PyObject *py_give_up(PyObject *Py_UNUSED(module), PyObject *arguments) {
    unsigned long long lane;
    if (!PyArg_ParseTuple(arguments, "K:give_up", &lane))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    relay_give_up(lane);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_watches(PyObject *Py_UNUSED(module), PyObject *arguments) {
    int pid;
    if (!PyArg_ParseTuple(arguments, "i:watches", &pid))
        return NULL;
    return PyBool_FromLong(relay_watches(pid));
}

static PyObject *py_hold(PyObject *Py_UNUSED(module), PyObject *arguments) {
    int held;
    if (!PyArg_ParseTuple(arguments, "p:hold", &held))
        return NULL;
    relay_hold(held);
    Py_RETURN_NONE;
}

static PyObject *py_hold_after(PyObject *Py_UNUSED(module), PyObject *arguments) {
    double moment;
    if (!PyArg_ParseTuple(arguments, "d:hold_after", &moment))
        return NULL;
    relay_hold_after(moment);
    Py_RETURN_NONE;
}

static PyObject *py_heard(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    relay_heard();
    Py_RETURN_NONE;
}

static PyObject *py_pending(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    return PyBool_FromLong(relay_pending());
}

static PyObject *py_take(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *list = PyList_New(0);
    Event *events = relay_take();
    for (Event *event = events; list && event; event = event->next) {
        const Usage *used = &event->usage;
        PyObject *item = Py_BuildValue("(KdidLLii(lllllll))", event->lane, event->ended_at, (int)event->pid, event->at,
                                       event->since, event->until, event->output.out, event->output.err, used->user,
                                       used->system, used->memory, used->minor_faults, used->major_faults, used->read,
                                       used->written);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    free_events(events);
    return list;
}

static PyMethodDef methods[] = {
    {"open", py_open, METH_VARARGS, NULL},       {"close", py_close, METH_NOARGS, NULL},
    {"enter", py_enter, METH_NOARGS, NULL},      {"leave", py_leave, METH_NOARGS, NULL},
    {"enter_within", py_enter_within, METH_VARARGS, NULL},
    {"watch", py_watch, METH_VARARGS, NULL},     {"offer", py_offer, METH_VARARGS, NULL},
    {"give_up", py_give_up, METH_VARARGS, NULL}, {"hold", py_hold, METH_VARARGS, NULL},
    {"hold_after", py_hold_after, METH_VARARGS, NULL}, {"heard", py_heard, METH_NOARGS, NULL},
    {"pending", py_pending, METH_NOARGS, NULL},  {"take", py_take, METH_NOARGS, NULL},
    {"watches", py_watches, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_relay",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__relay(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module && (PyModule_AddIntConstant(module, "INTERFACE", RELAY_INTERFACE) < 0 ||
                   PyModule_AddStringConstant(module, "SUCCEEDED_LINE", RELAY_SUCCEEDED_LINE) < 0))
        Py_CLEAR(module);
    return module;
}
