#include "python/extension/guard_object.h"

#include <cstdint>
#include <dlfcn.h>
#include <memory>
#include <vector>

namespace kernwright::python {
namespace {

/// Counts the changes of all dicts that guards rest on, on Python 3.12 and newer. A guard that
/// found its dicts unchanged need not walk them again while the count stays. A guard walks its
/// dicts at each call if there are no watchers, if they miss changes, or if others have all of
/// them.
///
/// Python calls a watcher before a dict changes or dies, and runs no other code until it has. A
/// dict stays watched as long as it lives, since other guards may rest on it. All guards share one
/// count, since a model that runs seldom changes.
///
/// Guarded by the GIL. A Python without a GIL loads no extension of the limited API of 3.10.
class DictWatcher {
 public:
  /// Adds the watcher to the interpreter. Looks for the functions by name, since the limited API
  /// does not have them.
  void start() {
    id_ = -1;
    auto* add = reinterpret_cast<int (*)(Callback*)>(::dlsym(RTLD_DEFAULT, "PyDict_AddWatcher"));
    watch_ = reinterpret_cast<int (*)(int, PyObject*)>(::dlsym(RTLD_DEFAULT, "PyDict_Watch"));
    if (add == nullptr || watch_ == nullptr) return;
    interpreter_ = PyInterpreterState_Get();
    id_ = add([](int, PyObject*, PyObject*, PyObject*) {
      ++counted;
      return 0;
    });
    if (id_ < 0 || !sees_attributes()) {
      id_ = -1;
      PyErr_Clear();  // others have all of them
    }
  }

  /// Returns true if each change of the dict counts from now on.
  bool watch(PyObject* dict) const {
    if (id_ < 0 || PyInterpreterState_Get() != interpreter_) return false;
    if (watch_(id_, dict) == 0) return true;
    PyErr_Clear();
    return false;
  }

  /// Returns at least 1.
  std::uint64_t changes() const { return counted; }

 private:
  using Callback = int(int event, PyObject* dict, PyObject* key, PyObject* value);

  /// Returns true if an attribute that is set counts as a change of the object's dict.
  /// Python 3.13.0 calls no watcher if the values are stored within the object.
  bool sees_attributes() const {
    const Ref type(
        PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "Probe"));
    const Ref object(type ? PyObject_CallNoArgs(type.get()) : nullptr);
    if (!object || PyObject_SetAttrString(object.get(), "value", Py_None) != 0) return false;
    const Ref dict(PyObject_GenericGetDict(object.get(), nullptr));
    if (!dict || !watch(dict.get())) return false;
    const std::uint64_t before = counted;
    return PyObject_SetAttrString(object.get(), "value", Py_True) == 0 && counted != before;
  }

  static inline std::uint64_t counted = 1;
  int (*watch_)(int, PyObject*) = nullptr;
  PyInterpreterState* interpreter_ = nullptr;  // which has the watcher
  int id_ = -1;
};

DictWatcher dict_watcher;

struct GuardedSize {
  PyObject* container;
  Py_ssize_t size;
};

/// The last entry of a dict. Another key takes the place behind it. If instances share keys and
/// this one was deleted, the other key takes its own place.
struct GuardedEnd {
  PyObject* dict;
  Py_ssize_t place;
  PyObject* key;
};

/// One value of a dict, or its type. PyDict_Next() finds it by its place, which costs a fifth of a
/// look-up.
struct GuardedEntry {
  PyObject* dict;
  Py_ssize_t place;
  PyObject *key, *value;
};

struct GuardedItem {
  PyObject* list;
  Py_ssize_t place;
  PyObject* item;
};

struct GuardedObject {
  PyObject *object, *type, *dict;
};

struct GuardedAttribute {
  PyObject *owner, *name, *value;
};

/// Facts of one kind are kept together, since a model has thousands: the processor cannot predict
/// the end of short loops over the few facts of each dict.
struct GuardState {
  PyObject* root = nullptr;      ///< not owned
  std::vector<PyObject*> owned;  ///< all that the facts name, except the root
  bool is_watched = true;        ///< whether all dicts are, except the root
  std::uint64_t held_at = 0;     ///< the count of changes at which the dicts were as recorded
  std::vector<GuardedObject> objects;
  std::vector<GuardedSize> dict_sizes, list_sizes;
  std::vector<GuardedEntry> values, kinds;
  std::vector<GuardedEnd> ends;
  std::vector<GuardedItem> items;
  std::vector<GuardedAttribute> attributes;

  GuardState() = default;
  GuardState(const GuardState&) = delete;
  GuardState& operator=(const GuardState&) = delete;
  ~GuardState() {
    for (PyObject* object : owned) drop(object);
  }

  /// Keeps the object as long as the state lives, and returns it.
  PyObject* own(PyObject* object) {
    if (object == root) return object;
    owned.push_back(object);
    Py_INCREF(object);
    return object;
  }
};

struct GuardObject {
  PyObject_HEAD GuardState* state;
};

GuardState& guard_state_of(PyObject* self) { return *reinterpret_cast<GuardObject*>(self)->state; }

PyObject* type_of(PyObject* object) { return reinterpret_cast<PyObject*>(Py_TYPE(object)); }

/// Returns the value of the entry if it has the same key, else null.
PyObject* value_now(const GuardedEntry& entry) {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t place = entry.place;
  const bool same = PyDict_Next(entry.dict, &place, &key, &value) != 0 && key == entry.key;
  return same ? value : nullptr;
}

/// Returns true if the object has the same type and the same dict. No watcher of a dict sees that
/// the object is given another one.
bool is_unchanged(const GuardedObject& watched) {
  if (type_of(watched.object) != watched.type) return false;
  const Ref dict(PyObject_GenericGetDict(watched.object, nullptr));
  if (!dict) PyErr_Clear();
  return dict.get() == watched.dict;
}

/// Returns true if the dicts have what was recorded.
bool are_dicts_unchanged(const GuardState& state) {
  for (const GuardedSize& watched : state.dict_sizes) {
    if (PyDict_Size(watched.container) != watched.size) return false;
  }
  for (const GuardedEntry& entry : state.values) {
    if (value_now(entry) != entry.value) return false;
  }
  for (const GuardedEntry& entry : state.kinds) {
    PyObject* value = value_now(entry);
    if (value == nullptr || type_of(value) != entry.value) return false;
  }
  for (const GuardedEnd& watched : state.ends) {
    PyObject* key = nullptr;
    Py_ssize_t place = watched.place;
    if (PyDict_Next(watched.dict, &place, &key, nullptr) == 0 || key != watched.key ||
        PyDict_Next(watched.dict, &place, nullptr, nullptr) != 0) {
      return false;
    }
  }
  return true;
}

/// Returns true if everything that is read without calling Python is unchanged.
bool are_unchanged(GuardState& state) {
  for (const GuardedObject& watched : state.objects) {
    if (!is_unchanged(watched)) return false;
  }
  for (const GuardedSize& watched : state.list_sizes) {
    if (PyList_Size(watched.container) != watched.size) return false;
  }
  for (const GuardedItem& watched : state.items) {
    if (PyList_GetItem(watched.list, watched.place) != watched.item) return false;
  }
  if (state.held_at == dict_watcher.changes()) return true;
  // The root may have died, and another dict may have its address.
  const bool is_watched = dict_watcher.watch(state.root) && state.is_watched;
  if (!are_dicts_unchanged(state)) return false;
  if (is_watched) state.held_at = dict_watcher.changes();
  return true;
}

/// Returns -1 with a Python error set.
int guard_check(GuardState& state, PyObject* root) {
  if (root != state.root || !are_unchanged(state)) return 0;
  for (const GuardedAttribute& attribute : state.attributes) {
    const Ref now(PyObject_GetAttr(attribute.owner, attribute.name));
    if (!now && PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return -1;
    PyErr_Clear();
    if (now.get() != attribute.value) return 0;
  }
  return 1;
}

PyObject* guard_holds(PyObject* self, PyObject* root) {
  const int result = guard_check(guard_state_of(self), root);
  return result < 0 ? nullptr : PyBool_FromLong(result);
}

/// Returns None: a copy of a module must be examined again.
PyObject* guard_copy(PyObject*, PyObject*) { Py_RETURN_NONE; }

PyObject* guard_reduce(PyObject*, PyObject*) {
  return Py_BuildValue("(O())", reinterpret_cast<PyObject*>(Py_TYPE(Py_None)));
}

int guard_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const GuardState* state = reinterpret_cast<GuardObject*>(self)->state;
  if (state == nullptr) return 0;
  for (PyObject* object : state->owned) Py_VISIT(object);
  return 0;
}

int guard_clear(PyObject* self) {
  delete std::exchange(reinterpret_cast<GuardObject*>(self)->state, new GuardState());
  return 0;
}

void guard_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  delete reinterpret_cast<GuardObject*>(self)->state;
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyMethodDef kGuardMethods[] = {{"holds", method<guard_holds>(), METH_O,
                                "holds($self, root, /)\n--\n\n"
                                "Returns whether everything is as it was recorded."},
                               {"__copy__", method<guard_copy>(), METH_NOARGS, nullptr},
                               {"__deepcopy__", method<guard_copy>(), METH_O, nullptr},
                               {"__reduce__", method<guard_reduce>(), METH_NOARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};

PyType_Slot kGuardSlots[] = {
    {Py_tp_doc, const_cast<char*>("A record of what something was decided from.")},
    {Py_tp_traverse, reinterpret_cast<void*>(guard_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(guard_clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(guard_dealloc)},
    {Py_tp_methods, kGuardMethods},
    {0, nullptr}};

PyType_Spec kGuardSpec = {"kernwright._kernwright.Guard", sizeof(GuardObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, kGuardSlots};

PyTypeObject* guard_type = nullptr;  // guarded by the GIL

/// Records the entries of the dict that `keys` and `kinds` name and, if `whole`, that it has no
/// other keys than now. Returns false with a Python error set.
bool record_dict(GuardState& state, PyObject* dict, PyObject* keys, PyObject* kinds, bool whole) {
  state.own(dict);
  state.is_watched = dict_watcher.watch(dict) && state.is_watched;
  const Py_ssize_t size = PyDict_Size(dict);
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t place = 0, recorded = 0;
  GuardedEnd end = {dict, 0, nullptr};
  for (Py_ssize_t before = 0; PyDict_Next(dict, &place, &key, &value) != 0; before = place) {
    end = {dict, before, key};
    const int same = PySet_Contains(keys, key);
    const int kind = same == 0 ? PySet_Contains(kinds, key) : 0;
    if (same < 0 || kind < 0) return false;
    if (same == 0 && kind == 0) continue;
    auto& entries = same != 0 ? state.values : state.kinds;
    entries.push_back(
        {dict, before, state.own(key), state.own(same != 0 ? value : type_of(value))});
    ++recorded;
  }
  if (whole) state.dict_sizes.push_back({dict, size});
  if (whole && recorded < size) {
    state.own(end.key);
    state.ends.push_back(end);
  }
  return true;
}

bool record_dicts(GuardState& state, PyObject* list) {
  for (Py_ssize_t i = 0; i < PyList_Size(list); ++i) {
    PyObject *dict = nullptr, *keys = nullptr, *kinds = nullptr;
    int whole = 0;
    if (PyArg_ParseTuple(PyList_GetItem(list, i), "O!OOp", &PyDict_Type, &dict, &keys, &kinds,
                         &whole) == 0 ||
        !record_dict(state, dict, keys, kinds, whole != 0)) {
      return false;
    }
  }
  return true;
}

bool record_lists(GuardState& state, PyObject* lists) {
  for (Py_ssize_t i = 0; i < PyList_Size(lists); ++i) {
    PyObject* list = PyList_GetItem(lists, i);
    if (PyList_Check(list) == 0) {
      PyErr_Format(PyExc_TypeError, "%R, and a list expected", Py_TYPE(list));
      return false;
    }
    state.list_sizes.push_back({state.own(list), PyList_Size(list)});
    for (Py_ssize_t j = 0; j < PyList_Size(list); ++j) {
      state.items.push_back({list, j, state.own(PyList_GetItem(list, j))});
    }
  }
  return true;
}

}  // namespace

PyObject* make_guard(PyObject*, PyObject* given) {
  PyObject *root = nullptr, *dicts = nullptr, *lists = nullptr;
  PyObject *types = nullptr, *attributes = nullptr;
  if (PyArg_ParseTuple(given, "O!O!O!O!O!", &PyDict_Type, &root, &PyList_Type, &dicts, &PyList_Type,
                       &lists, &PyList_Type, &types, &PyList_Type, &attributes) == 0) {
    return nullptr;
  }
  auto state = std::make_unique<GuardState>();
  state->root = root;
  if (!record_dicts(*state, dicts)) return nullptr;
  if (!record_lists(*state, lists)) return nullptr;
  for (Py_ssize_t i = 0; i < PyList_Size(types); ++i) {
    PyObject *object = nullptr, *type = nullptr;
    if (PyArg_ParseTuple(PyList_GetItem(types, i), "OO", &object, &type) == 0) return nullptr;
    const Ref dict(PyObject_GenericGetDict(object, nullptr));
    if (!dict) return nullptr;
    state->objects.push_back({state->own(object), state->own(type), state->own(dict.get())});
  }
  for (Py_ssize_t i = 0; i < PyList_Size(attributes); ++i) {
    PyObject *owner = nullptr, *name = nullptr, *value = nullptr;
    if (PyArg_ParseTuple(PyList_GetItem(attributes, i), "OUO", &owner, &name, &value) == 0) {
      return nullptr;
    }
    state->attributes.push_back({state->own(owner), state->own(name), state->own(value)});
  }
  GuardObject* guard = PyObject_GC_New(GuardObject, guard_type);
  if (guard == nullptr) return nullptr;
  guard->state = state.release();
  PyObject_GC_Track(guard);
  return reinterpret_cast<PyObject*>(guard);
}

bool add_guard_type(PyObject* module) {
  guard_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kGuardSpec));
  if (guard_type == nullptr) return false;
  dict_watcher.start();
  Py_INCREF(guard_type);
  return PyModule_AddObject(module, "Guard", reinterpret_cast<PyObject*>(guard_type)) == 0;
}

}  // namespace kernwright::python
